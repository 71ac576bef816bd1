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
	// doubt receives a value when something that Facts depends on may have changed.
	doubt  chan struct{}
	cancel context.CancelFunc
	ending sync.WaitGroup
}

var _ Switch = (*Client)(nil)

// New starts to follow Open vSwitch until ctx ends or Close is called. It does not wait for Open vSwitch: until it
// runs, calls return an error that names what is missing, and an event reports when it is there.
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

// NewReader is New for a process other than the daemon that calls only Datapath. It knows no bridge: following a bridge
// tests flows on it, which the daemon would take for another program's.
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

// start runs the parts until ctx ends or Close is called.
func (c *Client) start(ctx context.Context, parts ...func(context.Context)) {
	ctx, c.cancel = context.WithCancel(ctx)
	for _, part := range parts {
		c.ending.Go(func() { part(ctx) })
	}
}

// Close stops all parts and waits for them.
func (c *Client) Close() {
	c.cancel()
	c.ending.Wait()
	c.host.close()
}

// look makes compareFacts run again.
func (c *Client) look() {
	select {
	case c.doubt <- struct{}{}:
	default:
	}
}

// Events reports changes until ctx ends.
func (c *Client) Events(ctx context.Context) <-chan Event {
	return c.events.subscribe(ctx)
}

// knownBridge returns a bridge of a rail. It refuses all other names, so that no name from outside gets further.
func (c *Client) knownBridge(name string) (*bridge, error) {
	if bridge, ok := c.bridges[name]; ok {
		return bridge, nil
	}
	return nil, fmt.Errorf("no rail has the bridge %.20q", name)
}
