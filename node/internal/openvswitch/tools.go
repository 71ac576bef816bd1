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
)

// Bounds of what Open vSwitch's tools may take and say.
const (
	toolBound       = 20 * time.Second
	longestLine     = 1 << 20
	mostOutputBytes = 512 << 20
	mostComplaint   = 2000
)

// exitStatus of a tool that is no success; some of them mean something else than failure.
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

// runTool starts one of Open vSwitch's tools, gives it input, and calls visit for each line that it prints. It knows no
// shell and nothing of our environment; it dies with ctx and with this process.
func runTool(ctx context.Context, input io.Reader, visit func(line string), program string, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolBound)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second
	command.Stdin = input
	complaint := &head{most: mostComplaint}
	command.Stderr = complaint
	out, err := command.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w; is openvswitch-switch installed?", program, err)
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
		return fmt.Errorf("%s did not end in time: %w", program, ctx.Err())
	case errors.As(err, &exit) && exit.Exited():
		return exitStatus{exit.ExitCode(), complaint.line()}
	case err != nil:
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

func eachLine(from io.Reader, visit func(line string)) error {
	left := &io.LimitedReader{R: from, N: mostOutputBytes}
	lines := bufio.NewScanner(left)
	lines.Buffer(make([]byte, 0, 64<<10), longestLine)
	for lines.Scan() {
		visit(lines.Text())
	}
	if lines.Err() == nil && left.N == 0 {
		return fmt.Errorf("it prints more than %d MiB", mostOutputBytes>>20)
	}
	return lines.Err()
}

// head keeps the beginning of what is written to it.
type head struct {
	bytes.Buffer
	most int
}

func (h *head) Write(data []byte) (int, error) {
	if room := h.most - h.Len(); room > 0 {
		h.Buffer.Write(data[:min(room, len(data))])
	}
	return len(data), nil
}

// line of all that was said, printable.
func (h *head) line() string {
	quoted := strconv.Quote(strings.Join(strings.Fields(h.String()), " "))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// greetings that are tried with a bridge before it is an error.
const greetings = 3

// hungUp is what ovs-ofctl says where ovs-vswitchd took its connection and ended it before both had greeted, as it does
// with one that it could not serve for a second. Nothing was asked for then.
var hungUp = regexp.MustCompile(
	`(connecting to|failed to connect to socket).*\((Broken pipe|End of file|Connection reset by peer)\)`)

// ofctl runs ovs-ofctl on a bridge's management socket, and gives it input where there is some.
func (c *Client) ofctl(ctx context.Context, bridge, input string, visit func(line string), command string,
	arguments ...string) error {
	words := append([]string{"-O", "OpenFlow14", "--bundle", command, "unix:" + c.settings.management(bridge)},
		arguments...)
	for left := greetings - 1; ; left-- {
		var stdin io.Reader
		if input != "" {
			stdin = strings.NewReader(input)
		}
		err := runTool(ctx, stdin, visit, "ovs-ofctl", words...)
		var exit exitStatus
		if left == 0 || !errors.As(err, &exit) || !hungUp.MatchString(exit.complaint) {
			return err
		}
	}
}

// appctl asks ovs-vswitchd itself.
func (c *Client) appctl(ctx context.Context, visit func(line string), arguments ...string) error {
	socket := c.settings.Control
	if socket == "" {
		file := filepath.Join(c.settings.Management, "ovs-vswitchd.pid")
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("ovs-vswitchd's control socket is found by its pid file: %w", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || pid <= 0 {
			return fmt.Errorf("%s holds %.20q, no process id", file, text)
		}
		socket = filepath.Join(c.settings.Management, fmt.Sprintf("ovs-vswitchd.%d.ctl", pid))
	}
	return runTool(ctx, nil, visit, "ovs-appctl", append([]string{"-t", socket}, arguments...)...)
}
