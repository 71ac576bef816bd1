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

// bgpd is FRR's BGP daemon, reached over the unix socket that vtysh uses. A command ends with a NUL; the reply's text
// ends with three NULs and a status byte.
type bgpd struct{ socket string }

const (
	// replyLimit bounds memory; 1,000 advertised routes are about 0.3 MB.
	replyLimit = 16 << 20
	// exchangeLimit bounds a command with its reply, which take 1 ms on a healthy bgpd.
	exchangeLimit = 2 * time.Second
)

// conversation is a connection to bgpd, for use by a single goroutine.
type conversation struct {
	connection net.Conn
	end        func() bool
	ctx        context.Context
}

// refusal is an error that bgpd returned for a command.
type refusal struct {
	command, reply string
	status         byte
}

func (r refusal) Error() string {
	return fmt.Sprintf("bgpd refused %q: %s (status %d)", r.command, brief(r.reply), r.status)
}

// open connects to bgpd with the right to configure. The caller must close the conversation, which also ends with ctx.
func (b bgpd) open(ctx context.Context) (*conversation, error) {
	dialer := net.Dialer{Timeout: exchangeLimit}
	connection, err := dialer.DialContext(ctx, "unix", b.socket)
	if late := contextError(ctx); err != nil && late != nil {
		return nil, fmt.Errorf("%w: no reply in time: %w", ErrNotReady, late)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w; check that FRR runs with bgpd=yes in /etc/frr/daemons", ErrNotReady, err)
	}
	talk := &conversation{connection: connection, ctx: ctx}
	talk.end = context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	if _, err := talk.run("enable"); err != nil {
		talk.close()
		return nil, err
	}
	return talk, nil
}

func (c *conversation) close() {
	c.end()
	_ = c.connection.Close()
}

// run runs a command and returns the reply's text. A command that bgpd refuses returns a refusal; any other error ends
// the conversation. Commands consist of fixed words, checked names and typed values only.
func (c *conversation) run(command string) (string, error) {
	_ = c.connection.SetDeadline(time.Now().Add(exchangeLimit))
	if err := c.ctx.Err(); err != nil {
		// Checked after setting the deadline, so that a cancellation in between is not lost.
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
				return "", 0, errors.New("reply has a NUL before its end")
			}
			return string(text[:end]), text[end+3], nil
		}
		if len(text) > replyLimit {
			return "", 0, fmt.Errorf("reply must be at most %d MiB", replyLimit>>20)
		}
		if err != nil {
			return "", 0, err
		}
	}
}

func (c *conversation) failed(command string, err error) error {
	var timeout net.Error
	if late := contextError(c.ctx); late != nil {
		err = fmt.Errorf("no reply in time: %w", late)
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("no reply within %v", exchangeLimit)
	}
	return fmt.Errorf("%w: %q: %w", ErrNotReady, command, err)
}

// contextError returns the error of an expired context, or nil. It checks the clock too, because a system call can
// notice the deadline a moment before the context does.
func contextError(ctx context.Context) error {
	if deadline, bounded := ctx.Deadline(); ctx.Err() == nil && bounded && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// query runs a single command in its own conversation.
func (b bgpd) query(ctx context.Context, command string) (string, error) {
	talk, err := b.open(ctx)
	if err != nil {
		return "", err
	}
	defer talk.close()
	return talk.run(command)
}

// brief shortens and escapes a text from bgpd for a log line.
func brief(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(letter rune) bool { return letter <= ' ' || letter == 0x7f }), " ")
	const limit = 160
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return strings.ToValidUTF8(strings.Trim(fmt.Sprintf("%+q", text), `"`), "?")
}
