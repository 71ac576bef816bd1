package openvswitch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"railwright/node/internal/plan"
)

// The subset of OpenFlow 1.4 that is needed to notice at once that ovs-vswitchd died, every second that the flows are
// still there, and to change flows.
const (
	openflow14            = 5
	headerBytes           = 8
	multipartBytes        = 8
	typeHello             = 0
	typeError             = 1
	typeEchoRequest       = 2
	typeEchoReply         = 3
	typeMultipartRequest  = 18
	typeMultipartReply    = 19
	multipartAggregate    = 2
	multipartTable        = 3
	allTables             = 0xff
	any32                 = 0xffffffff
	aggregateRequestBytes = 56
	aggregateReplyBytes   = 40
	tableStatsBytes       = 24

	replyBound = 5 * time.Second
)

// conversation is a connection to a bridge over its management socket.
type conversation struct {
	connection net.Conn
	sending    sync.Mutex
	number     atomic.Uint32
	// replies receives the replies to our requests. It is closed when the connection ends; ended then holds the reason.
	replies chan []byte
	ended   error
}

// converse connects and sends a hello. The conversation ends with hangUp or when ovs-vswitchd ends it.
func converse(ctx context.Context, path string) (*conversation, error) {
	ctx, cancel := context.WithTimeout(ctx, replyBound)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	talk := &conversation{connection: connection, replies: make(chan []byte, 1)}
	if err := talk.send(typeHello, nil); err != nil {
		_ = connection.Close()
		return nil, err
	}
	go talk.listen()
	return talk, nil
}

func (c *conversation) hangUp() {
	_ = c.connection.Close()
	for range c.replies {
	}
}

// listen reads until the connection ends, and answers echo requests, without which ovs-vswitchd closes the connection.
func (c *conversation) listen() {
	defer close(c.replies)
	for {
		kind, body, err := c.receive()
		switch {
		case err != nil:
			c.ended = err
			return
		case kind == typeEchoRequest:
			c.ended = c.send(typeEchoReply, body)
			if c.ended != nil {
				return
			}
		case kind == typeMultipartReply, kind == typeBundleControl:
			c.replies <- body
		case kind == typeError && len(body) >= 4:
			// type and code; the rest repeats our request
			c.ended = fmt.Errorf("ovs-vswitchd refused an OpenFlow 1.4 request: error %x", body[:4])
			return
		}
	}
}

func (c *conversation) receive() (kind byte, body []byte, err error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(c.connection, header[:]); err != nil {
		return 0, nil, err
	}
	length := int(binary.BigEndian.Uint16(header[2:]))
	if length < headerBytes {
		return 0, nil, fmt.Errorf("OpenFlow message must have at least 8 bytes, got %d", length)
	}
	body = make([]byte, length-headerBytes)
	_, err = io.ReadFull(c.connection, body)
	return header[1], body, err
}

func (c *conversation) send(kind byte, body []byte) error {
	return c.write(message(kind, c.nextNumber(), body))
}

func message(kind byte, number uint32, body []byte) []byte {
	made := make([]byte, headerBytes, headerBytes+len(body))
	made[0], made[1] = openflow14, kind
	binary.BigEndian.PutUint16(made[2:], uint16(headerBytes+len(body)))
	binary.BigEndian.PutUint32(made[4:], number)
	return append(made, body...)
}

func (c *conversation) nextNumber() uint32 { return c.number.Add(1) }

func (c *conversation) write(messages []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.connection.SetWriteDeadline(time.Now().Add(replyBound)); err != nil {
		return err
	}
	_, err := c.connection.Write(messages)
	return err
}

// reply returns the next reply to our requests.
func (c *conversation) reply(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, replyBound)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("no reply within %v: %w", replyBound, ctx.Err())
	case reply, open := <-c.replies:
		if !open {
			return nil, c.end()
		}
		return reply, nil
	}
}

// ask sends a multipart request and returns the body of its only reply.
func (c *conversation) ask(ctx context.Context, kind uint16, request []byte) ([]byte, error) {
	binary.BigEndian.PutUint16(request, kind)
	if err := c.send(typeMultipartRequest, request); err != nil {
		return nil, err
	}
	reply, err := c.reply(ctx)
	if err != nil {
		return nil, err
	}
	if len(reply) < multipartBytes || binary.BigEndian.Uint16(reply) != kind || binary.BigEndian.Uint16(reply[2:]) != 0 {
		return nil, fmt.Errorf("unexpected reply of %d bytes", len(reply))
	}
	return reply[multipartBytes:], nil
}

// countAll returns the number of flows in all tables. ovs-vswitchd keeps a count for each table, so it walks no flows.
func (c *conversation) countAll(ctx context.Context) (flows int, err error) {
	reply, err := c.ask(ctx, multipartTable, make([]byte, multipartBytes))
	for ; len(reply) >= tableStatsBytes; reply = reply[tableStatsBytes:] {
		flows += int(binary.BigEndian.Uint32(reply[4:]))
	}
	return flows, err
}

// count returns the number of flows with this cookie. ovs-vswitchd has an index of cookies.
func (c *conversation) count(ctx context.Context, cookie uint64) (int, error) {
	request := make([]byte, aggregateRequestBytes-headerBytes)
	request[8] = allTables
	binary.BigEndian.PutUint32(request[12:], any32) // any output port
	binary.BigEndian.PutUint32(request[16:], any32) // any group
	binary.BigEndian.PutUint64(request[24:], cookie)
	binary.BigEndian.PutUint64(request[32:], ^uint64(0))
	binary.BigEndian.PutUint16(request[40:], 1) // an empty OXM match
	binary.BigEndian.PutUint16(request[42:], 4)
	reply, err := c.ask(ctx, multipartAggregate, request)
	if err != nil {
		return 0, err
	}
	if len(reply) < aggregateReplyBytes-headerBytes-multipartBytes {
		return 0, fmt.Errorf("unexpected reply of %d bytes", len(reply))
	}
	return int(binary.BigEndian.Uint32(reply[16:])), nil
}

// end returns why the conversation ended. It must be called after replies is closed.
func (c *conversation) end() error {
	if errors.Is(c.ended, io.EOF) || c.ended == nil {
		return errors.New("ovs-vswitchd closed the connection")
	}
	return c.ended
}

// sight is the state of a bridge's flows at a look.
type sight struct {
	canary bool
	flows  int
}

func (c *conversation) look(ctx context.Context) (sight, error) {
	canary, err := c.count(ctx, plan.Cookie(0, plan.Canary))
	if err != nil {
		return sight{}, err
	}
	all, err := c.countAll(ctx)
	return sight{canary: canary > 0, flows: all}, err
}
