package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	ovsdbclient "github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// Rows with only the columns that we read: an Interface's statistics alone would wake us every five seconds.
type (
	openVSwitchRow struct {
		UUID        string            `ovsdb:"_uuid"`
		OtherConfig map[string]string `ovsdb:"other_config"`
	}
	bridgeRow struct {
		UUID         string            `ovsdb:"_uuid"`
		Name         string            `ovsdb:"name"`
		Ports        []string          `ovsdb:"ports"`
		FailMode     *string           `ovsdb:"fail_mode"`
		DatapathType string            `ovsdb:"datapath_type"`
		Protocols    []string          `ovsdb:"protocols"`
		Controllers  []string          `ovsdb:"controller"`
		OtherConfig  map[string]string `ovsdb:"other_config"`
	}
	portRow struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Interfaces  []string          `ovsdb:"interfaces"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	interfaceRow struct {
		UUID   string  `ovsdb:"_uuid"`
		Name   string  `ovsdb:"name"`
		OFPort *int    `ovsdb:"ofport"`
		Error  *string `ovsdb:"error"`
	}
)

const (
	databaseBound = 5 * time.Second
	firstPause    = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

// database follows ovsdb-server: it reconnects for ever, and keeps libovsdb's copy of the rows. Each connection has its
// own client, so that nothing stale is taken for news.
type database struct {
	path     string
	log      *slog.Logger
	onChange func()
	// tried is closed once the first attempt to connect has ended, successful or not.
	tried     chan struct{}
	firstTime sync.Once

	lock    sync.Mutex
	client  ovsdbclient.Client // nil: not connected
	problem error
	changed chan struct{} // closed and replaced at each change
	kept    keptContents
}

func newDatabase(path string, log *slog.Logger, onChange func()) *database {
	return &database{
		path: path, log: log, onChange: onChange, tried: make(chan struct{}),
		changed: make(chan struct{}), problem: errors.New("not connected yet"),
	}
}

func (d *database) follow(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		client, err := d.connect(ctx)
		d.set(client, err)
		if err == nil {
			d.log.Info("connected to Open vSwitch's database", "socket", d.path)
			pause = firstPause
			err = d.untilGone(ctx, client)
			d.set(nil, err)
			client.Close()
		}
		if ctx.Err() == nil && pause == firstPause {
			d.log.Warn("Open vSwitch's database does not reply", "socket", d.path, "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		}
	}
}

func (d *database) connect(ctx context.Context) (ovsdbclient.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	rows, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		"Open_vSwitch": &openVSwitchRow{}, "Bridge": &bridgeRow{}, "Port": &portRow{}, "Interface": &interfaceRow{},
	})
	if err != nil {
		return nil, err
	}
	silent := logr.Discard()
	client, err := ovsdbclient.NewOVSDBClient(rows, ovsdbclient.WithEndpoint("unix:"+d.path),
		ovsdbclient.WithLogger(&silent))
	if err != nil {
		return nil, err
	}
	if err := client.Connect(ctx); err != nil {
		client.Close()
		return nil, err
	}
	if err := d.monitor(ctx, client); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

func (d *database) monitor(ctx context.Context, client ovsdbclient.Client) error {
	client.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { d.change() },
		UpdateFunc: func(string, model.Model, model.Model) { d.change() },
		DeleteFunc: func(string, model.Model) { d.change() },
	})
	open, bridge, port, face := &openVSwitchRow{}, &bridgeRow{}, &portRow{}, &interfaceRow{}
	_, err := client.Monitor(ctx, client.NewMonitor(
		ovsdbclient.WithTable(open, &open.OtherConfig),
		ovsdbclient.WithTable(bridge, &bridge.Name, &bridge.Ports, &bridge.FailMode, &bridge.DatapathType,
			&bridge.Protocols, &bridge.Controllers, &bridge.OtherConfig),
		ovsdbclient.WithTable(port, &port.Name, &port.Interfaces, &port.ExternalIDs),
		ovsdbclient.WithTable(face, &face.Name, &face.OFPort, &face.Error),
	))
	return err
}

// untilGone waits until the server closes the connection or stops replying. It polls as well, because libovsdb's
// notification is lost if nobody receives it at that moment.
func (d *database) untilGone(ctx context.Context, client ovsdbclient.Client) error {
	gone := client.DisconnectNotify()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for beat := 1; ; beat++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gone:
			return errors.New("connection closed")
		case <-look.C:
		}
		if !client.Connected() {
			return errors.New("connection closed")
		}
		if beat%int(databaseBound/time.Second) != 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, databaseBound)
		err := client.Echo(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("no reply within %v: %w", databaseBound, err)
		}
	}
}

func (d *database) set(client ovsdbclient.Client, problem error) {
	d.lock.Lock()
	d.client, d.problem = client, problem
	d.lock.Unlock()
	d.change()
	d.firstTime.Do(func() { close(d.tried) })
}

// change wakes all waiters.
func (d *database) change() {
	d.lock.Lock()
	close(d.changed)
	d.changed = make(chan struct{})
	d.lock.Unlock()
	d.onChange()
}

// now returns the client to read from, and a channel that is closed at the next change.
func (d *database) now() (ovsdbclient.Client, <-chan struct{}, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.client == nil {
		return nil, d.changed, fmt.Errorf("Open vSwitch's database %s: %w; check that ovsdb-server runs",
			d.path, d.problem)
	}
	return d.client, d.changed, nil
}
