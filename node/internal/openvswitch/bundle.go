package openvswitch

import (
	"context"
	"encoding/binary"
	"fmt"

	"railwright/node/internal/plan"
)

const (
	typeBundleControl = 33
	typeBundleAdd     = 34
	bundleOpen        = 0
	bundleCommit      = 4
	bundleFlags       = 3 // atomic, ordered
	bundleBytes       = 8
)

// bundle encodes flows to add and delete as one atomic bundle, and returns its numbered messages.
func (c *conversation) bundle(add, remove []plan.Flow) ([]byte, error) {
	id := c.nextNumber()
	control := func(kind uint16) []byte {
		body := binary.BigEndian.AppendUint32(nil, id)
		body = binary.BigEndian.AppendUint16(body, kind)
		return binary.BigEndian.AppendUint16(body, bundleFlags)
	}
	messages := message(typeBundleControl, c.nextNumber(), control(bundleOpen))
	put := func(command byte, flows []plan.Flow) error {
		for _, flow := range flows {
			body, err := encodeFlow(command, flow)
			if err != nil {
				return err
			}
			number := c.nextNumber()
			inside := binary.BigEndian.AppendUint32(nil, id)
			inside = append(inside, 0, 0, 0, bundleFlags)
			messages = append(messages, message(typeBundleAdd, number, append(inside, message(typeFlowMod, number, body)...))...)
		}
		return nil
	}
	if err := put(modDelete, remove); err != nil {
		return nil, err
	}
	if err := put(modAdd, add); err != nil {
		return nil, err
	}
	return append(messages, message(typeBundleControl, c.nextNumber(), control(bundleCommit))...), nil
}

// program sends a bundle and waits until it is committed.
func (c *conversation) program(ctx context.Context, add, remove []plan.Flow) error {
	messages, err := c.bundle(add, remove)
	if err != nil {
		return err
	}
	if err := c.write(messages); err != nil {
		return err
	}
	for _, want := range []uint16{bundleOpen + 1, bundleCommit + 1} {
		reply, err := c.reply(ctx)
		if err != nil {
			return err
		}
		if len(reply) < bundleBytes || binary.BigEndian.Uint16(reply[4:]) != want {
			return fmt.Errorf("unexpected reply of %d bytes to a bundle", len(reply))
		}
	}
	return nil
}

// program changes flows over the bridge's own connection, which it opens again after an error. The caller holds
// b.writing.
func (b *bridge) program(ctx context.Context, add, remove []plan.Flow) error {
	if b.programmer == nil {
		talk, err := converse(ctx, b.client.settings.management(b.name))
		if err != nil {
			return err
		}
		b.programmer = talk
	}
	err := b.programmer.program(ctx, add, remove)
	if err != nil {
		b.programmer.hangUp()
		b.programmer = nil
	}
	return err
}
