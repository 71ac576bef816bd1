package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// bgpd is FRR's BGP daemon, spoken to over the unix socket that vtysh uses. A command goes out with a NUL behind it; the
// answer's text comes back with three NULs and a status behind it.
type bgpd struct{ socket string }

const (
	// answerLimit is a bound of memory; 1,000 advertised routes are about 0.3 MB.
	answerLimit = 16 << 20
	// exchangeLimit bounds one command and its answer, which take 1 ms where bgpd is well.
	exchangeLimit = 2 * time.Second
)

// conversation with bgpd. For one goroutine.
type conversation struct {
	connection net.Conn
	end        func() bool
	ctx        context.Context
}

// refusal is bgpd's own no to a command.
type refusal struct {
	command, reply string
	status         byte
}

func (r refusal) Error() string {
	return fmt.Sprintf("bgpd refuses %q: %s (status %d)", r.command, brief(r.reply), r.status)
}

// open a conversation with the right to configure; close it. It ends with ctx.
func (b bgpd) open(ctx context.Context) (*conversation, error) {
	dialer := net.Dialer{Timeout: exchangeLimit}
	connection, err := dialer.DialContext(ctx, "unix", b.socket)
	if late := ended(ctx); err != nil && late != nil {
		return nil, fmt.Errorf("%w: no answer in time: %w", ErrNotReady, late)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w; see that FRR runs with bgpd=yes in /etc/frr/daemons", ErrNotReady, err)
	}
	talk := &conversation{connection: connection, ctx: ctx}
	talk.end = context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	if _, err := talk.say("enable"); err != nil {
		talk.close()
		return nil, err
	}
	return talk, nil
}

func (c *conversation) close() {
	c.end()
	_ = c.connection.Close()
}

// say a command and give the answer's text. A refusal is an error of that type; any other ends the conversation.
// Commands are made from words of our own, checked names, and typed values alone.
func (c *conversation) say(command string) (string, error) {
	_ = c.connection.SetDeadline(time.Now().Add(exchangeLimit))
	if err := c.ctx.Err(); err != nil {
		// Asked after the deadline was set, so that an end in between is not lost.
		return "", c.failed(command, err)
	}
	if _, err := c.connection.Write(append([]byte(command), 0)); err != nil {
		return "", c.failed(command, err)
	}
	text, status, err := c.readReply()
	if err != nil {
		return "", c.failed(command, err)
	}
	if status != 0 {
		return "", refusal{command, text, status}
	}
	return text, nil
}

func (c *conversation) readReply() (string, byte, error) {
	var text []byte
	chunk := make([]byte, 64<<10)
	for {
		count, err := c.connection.Read(chunk)
		seen := max(0, len(text)-3)
		text = append(text, chunk[:count]...)
		if end := bytes.IndexByte(text[seen:], 0) + seen; end >= seen && len(text) >= end+4 {
			if len(text) > end+4 || !bytes.Equal(text[end:end+3], []byte{0, 0, 0}) {
				return "", 0, errors.New("the answer is not of FRR's kind: a NUL within it")
			}
			return string(text[:end]), text[end+3], nil
		}
		if len(text) > answerLimit {
			return "", 0, fmt.Errorf("the answer is above %d MiB", answerLimit>>20)
		}
		if err != nil {
			return "", 0, err
		}
	}
}

func (c *conversation) failed(command string, err error) error {
	var timeout net.Error
	if late := ended(c.ctx); late != nil {
		err = fmt.Errorf("no answer in time: %w", late)
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("no answer within %v", exchangeLimit)
	}
	return fmt.Errorf("%w: %q: %w", ErrNotReady, command, err)
}

// ended says why a caller's time is up, nil if it is not; a system call may know of its end a moment before the context.
func ended(ctx context.Context) error {
	if deadline, bounded := ctx.Deadline(); ctx.Err() == nil && bounded && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// ask one question.
func (b bgpd) ask(ctx context.Context, command string) (string, error) {
	talk, err := b.open(ctx)
	if err != nil {
		return "", err
	}
	defer talk.close()
	return talk.say(command)
}

// brief makes text of bgpd's fit for one line of a log.
func brief(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(letter rune) bool { return letter <= ' ' || letter == 0x7f }), " ")
	const most = 160
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ToValidUTF8(strings.Trim(fmt.Sprintf("%+q", text), `"`), "?")
}
