package directory

import (
	"cmp"
	"context"
	"errors"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

// earlierHold is how long addresses of an earlier state of this machine are held: a leaf keeps routes of an ended session
// for 120 s.
const earlierHold = 130 * time.Second

// machineID returns the ID of this machine, or "" if it is unknown.
func (d *Directory) machineID() string {
	return cmp.Or(look(d, func(*state) string { return d.machine.ID }), d.settings.Machine)
}

// register writes this machine's RailNode.
func (d *Directory) register(ctx context.Context, epoch string) error {
	machine, err := ask(ctx, d, "read Node", func(ctx context.Context) (tenants.Machine, error) {
		return d.store.Machine(ctx, d.settings.Node)
	})
	if err != nil {
		return err
	}
	d.mutex.Lock()
	d.machine = machine
	mine, node := d.self, d.node
	d.mutex.Unlock()
	spec := tenants.NodeSpec{
		Node: mine.Node, Instance: mine.Instance, NodeUID: cmp.Or(machine.NodeUID, mine.Instance), Machine: d.machineID(),
		Boot: d.settings.Boot, Epoch: epoch,
	}
	if before, err := tenants.Decode[tenants.NodeSpec](node); err != nil || before != spec {
		if node.UID == "" {
			node = tenants.Object{Kind: tenants.KindNode, Name: tenants.NodeName(spec.Node, spec.Instance)}
		}
		if node, err = d.replace(ctx, node, spec); err != nil {
			return err
		}
	}
	d.mutex.Lock()
	d.node = node
	d.mutex.Unlock()
	return nil
}

// lookAtSelf starts anew if this machine was declared off although it runs: another instance proves all claims again.
func (d *Directory) lookAtSelf(ctx context.Context) {
	node := look(d, func(*state) tenants.Object { return d.node })
	if node.UID == "" {
		return
	}
	_, err := d.get(ctx, tenants.KindNode, node.Name)
	if !errors.Is(err, tenants.ErrGone) || d.entering.take(ctx) != nil {
		return
	}
	defer d.entering.give()
	d.log.Error("this machine was declared off; its addresses must be claimed again")
	fresh := self{d.settings.Node, tenants.NewID()}
	lines := []entry{{Self: &fresh}}
	d.act(func(s *state) {
		d.self, d.node, d.passed = fresh, tenants.Object{}, ""
		s.name = tenants.NodeName(fresh.Node, fresh.Instance)
		for address := range s.owns {
			lines = append(lines, s.lose(address))
		}
		d.publishers = map[string]*publisher{}
	})
	if err := d.journal.write(lines...); err != nil {
		d.log.Error("cannot store that this machine was declared off", "error", err)
	}
}

// freeEarlier gives up what this machine held before it was restarted or lost its state. No flow of it is left.
func (d *Directory) freeEarlier(ctx context.Context) {
	for wait := earlierHold; pause.For(ctx, wait); wait = lastRetry {
		mine := look(d, func(*state) self { return d.self })
		list, err := d.list(ctx, tenants.KindNode, "")
		for _, object := range list.Objects {
			spec, fault := tenants.Decode[tenants.NodeSpec](object)
			if err == nil && fault == nil && spec.Node == mine.Node && spec.Instance != mine.Instance && spec.Machine != "" &&
				spec.Machine == d.machineID() {
				d.log.Info("giving up what this machine held before it lost its state", "instance", spec.Instance)
				err = Free(ctx, d.store, object)
			}
		}
		if err == nil {
			return
		}
	}
}
