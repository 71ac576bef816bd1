package openvswitch

import (
	"context"
	"fmt"
	"sync"
)

// Client implements Switch.
type Client struct {
	settings Settings
	rails    map[string]RailSettings // by bridge
	database *database
	host     *host
	bridges  map[string]*bridge
	events   *events
	// doubt is written to when something has changed that Facts may depend on.
	doubt  chan struct{}
	cancel context.CancelFunc
	ending sync.WaitGroup
}

var _ Switch = (*Client)(nil)

// New starts to follow Open vSwitch; all of it ends with ctx or with Close. It does not wait for Open vSwitch: calls
// say what is missing until it is there, and an event comes when it is.
func New(ctx context.Context, settings Settings) (*Client, error) {
	client, err := newClient(settings)
	if err != nil {
		return nil, err
	}
	parts := []func(context.Context){client.database.follow, client.followHost, client.compareFacts}
	for _, rail := range settings.Rails {
		client.rails[rail.Bridge] = rail
		bridge := newBridge(client, rail.Bridge)
		client.bridges[rail.Bridge] = bridge
		parts = append(parts, bridge.follow)
	}
	client.start(ctx, parts...)
	return client, nil
}

// NewReader is New for one who asks for Datapath alone, beside a daemon: it knows no bridge. To follow one is to change
// it, for flows are tried there, and the daemon would take them for somebody else's.
func NewReader(ctx context.Context, settings Settings) (*Client, error) {
	client, err := newClient(settings)
	if err != nil {
		return nil, err
	}
	client.start(ctx, client.database.follow)
	return client, nil
}

func newClient(settings Settings) (*Client, error) {
	if err := settings.check(); err != nil {
		return nil, err
	}
	host, err := newHost(settings.Netns)
	if err != nil {
		return nil, err
	}
	client := &Client{
		settings: settings,
		rails:    map[string]RailSettings{},
		host:     host,
		bridges:  map[string]*bridge{},
		events:   newEvents(),
		doubt:    make(chan struct{}, 1),
	}
	client.database = newDatabase(settings.Database, settings.Log, client.look)
	return client, nil
}

// start the parts; they end with ctx or with Close.
func (c *Client) start(ctx context.Context, parts ...func(context.Context)) {
	ctx, c.cancel = context.WithCancel(ctx)
	for _, part := range parts {
		c.ending.Go(func() { part(ctx) })
	}
}

// Close ends everything, and returns once it has ended.
func (c *Client) Close() {
	c.cancel()
	c.ending.Wait()
	c.host.close()
}

// look makes compareFacts look again.
func (c *Client) look() {
	select {
	case c.doubt <- struct{}{}:
	default:
	}
}

// Events tells what has changed until ctx ends.
func (c *Client) Events(ctx context.Context) <-chan Event {
	return c.events.subscribe(ctx)
}

// known bridge of ours, or an error: a name from outside gets no further than this.
func (c *Client) known(name string) (*bridge, error) {
	if bridge, ok := c.bridges[name]; ok {
		return bridge, nil
	}
	return nil, fmt.Errorf("%.20q is no rail's bridge", name)
}
