package openvswitch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"railwright/node/internal/plan"
)

// Limits on the run time and output of Open vSwitch's tools.
const (
	toolBound      = 2 * time.Minute
	longestLine    = 1 << 20
	maxOutputBytes = 512 << 20
	maxComplaint   = 2000
)

// exitStatus is a tool's exit status other than 0, which does not always mean failure.
type exitStatus struct {
	status    int
	complaint string
}

func (e exitStatus) Error() string {
	if e.complaint == "" {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.complaint
}

// runTool runs one of Open vSwitch's tools with input and calls visit for each line that it prints. It uses no shell
// and sets only PATH and LC_ALL in the environment. The tool is killed when ctx is done or this process exits.
func runTool(ctx context.Context, input io.Reader, visit func(line string), program string, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolBound)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second
	command.Stdin = input
	complaint := &head{limit: maxComplaint}
	command.Stderr = complaint
	out, err := command.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w; check that openvswitch-switch is installed", program, err)
	}
	readError := eachLine(out, visit)
	if readError != nil {
		cancel()
	}
	err = command.Wait()
	var exit *exec.ExitError
	switch {
	case readError != nil:
		return fmt.Errorf("%s: %w", program, readError)
	case ctx.Err() != nil:
		return fmt.Errorf("%s timed out: %w", program, ctx.Err())
	case errors.As(err, &exit) && exit.Exited():
		return exitStatus{exit.ExitCode(), complaint.line()}
	case err != nil:
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

func eachLine(from io.Reader, visit func(line string)) error {
	left := &io.LimitedReader{R: from, N: maxOutputBytes}
	lines := bufio.NewScanner(left)
	lines.Buffer(make([]byte, 0, 64<<10), longestLine)
	for lines.Scan() {
		visit(lines.Text())
	}
	if lines.Err() == nil && left.N == 0 {
		return fmt.Errorf("output must be at most %d MiB", maxOutputBytes>>20)
	}
	return lines.Err()
}

// head keeps the beginning of its input.
type head struct {
	bytes.Buffer
	limit int
}

func (h *head) Write(data []byte) (int, error) {
	if room := h.limit - h.Len(); room > 0 {
		h.Buffer.Write(data[:min(room, len(data))])
	}
	return len(data), nil
}

// line returns the kept text as a single printable line.
func (h *head) line() string {
	quoted := strconv.Quote(strings.Join(strings.Fields(h.String()), " "))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// maxAttempts is the number of attempts to connect to a bridge.
const maxAttempts = 3

// hungUp matches ovs-ofctl's message for a connection that ovs-vswitchd closed before both sides had sent a hello, as
// it does with a connection that it could not serve for a second. Nothing was requested then, so a retry is safe.
var hungUp = regexp.MustCompile(
	`(connecting to|failed to connect to socket).*\((Broken pipe|End of file|Connection reset by peer)\)`)

// ofctl runs ovs-ofctl on a bridge's management socket. input returns what it reads, or is nil.
func (c *Client) ofctl(ctx context.Context, bridge string, input func() io.Reader, visit func(line string), command string,
	arguments ...string) error {
	full := append([]string{"-O", "OpenFlow14", "--bundle", command, "unix:" + c.settings.management(bridge)},
		arguments...)
	for left := maxAttempts - 1; ; left-- {
		var stdin io.Reader
		if input != nil {
			stdin = input()
		}
		err := runTool(ctx, stdin, visit, "ovs-ofctl", full...)
		var exit exitStatus
		if left == 0 || !errors.As(err, &exit) || !hungUp.MatchString(exit.complaint) {
			return err
		}
	}
}

// appctl runs ovs-appctl.
func (c *Client) appctl(ctx context.Context, visit func(line string), arguments ...string) error {
	socket := c.settings.Control
	if socket == "" {
		file := filepath.Join(c.settings.Management, "ovs-vswitchd.pid")
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("find ovs-vswitchd's control socket: %w", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || pid <= 0 {
			return fmt.Errorf("%s must hold a process id, got %.20q", file, text)
		}
		socket = filepath.Join(c.settings.Management, fmt.Sprintf("ovs-vswitchd.%d.ctl", pid))
	}
	return runTool(ctx, nil, visit, "ovs-appctl", append([]string{"-t", socket}, arguments...)...)
}

// firstNudge is the pause before a round of revalidation is asked for, and longestNudge the longest between two requests.
const (
	firstNudge   = 5 * time.Millisecond
	longestNudge = 100 * time.Millisecond
)

// Settle implements Switch.
func (c *Client) Settle(ctx context.Context, rounds int) error {
	for range rounds {
		if err := c.awaitRound(ctx); err != nil {
			return fmt.Errorf("wait for the datapath, which all bridges must share: %w", err)
		}
	}
	return nil
}

// awaitRound waits for the end of a round of revalidation. An idle ovs-vswitchd begins one every 0.5 s, and at once after a
// change of flows; one that ended before ovs-vswitchd was asked to wait does not count, so it is nudged repeatedly.
func (c *Client) awaitRound(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.appctl(ctx, ignore, "revalidator/wait") }()
	for length := firstNudge; ; length = min(2*length, longestNudge) {
		select {
		case err := <-ended:
			return err
		case <-time.After(length):
			c.nudge(ctx)
		}
	}
}

// nudge makes ovs-vswitchd revalidate now, by a deletion that deletes nothing. All bridges share the rounds; without any
// bridge they come by themselves.
func (c *Client) nudge(ctx context.Context) {
	for _, bridge := range c.bridges {
		bridge.writing.Lock()
		err := bridge.program(ctx, nil, []plan.Flow{plan.NoFlow()})
		bridge.writing.Unlock()
		if err == nil {
			return
		}
	}
}
