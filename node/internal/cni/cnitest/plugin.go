package cnitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"railwright/node/testlab"
)

// Call is a call of a plugin by a container runtime.
type Call struct {
	// Program is the plugin's path. Its name selects the plugin.
	Program string
	// Host is the runtime's namespace; nil means the test's own.
	Host *testlab.Namespace
	// Extra are additional environment variables.
	Extra []string

	Command, ContainerID, Netns, Interface, Args string
	Config                                       string
}

// Outcome is the result of a call.
type Outcome struct {
	Stdout, Stderr string
	// Err is the plugin's CNI error, or nil.
	Err *types.Error
	// Wall is the elapsed time, and Processor the user and system time.
	Wall, Processor time.Duration
}

// Do runs the call in a process of its own. A failure without a CNI error fails the test.
func (c Call) Do(t testing.TB) Outcome {
	t.Helper()
	command := exec.Command(c.Program)
	if c.Host != nil {
		command = c.Host.Command(c.Program)
	}
	for name, value := range map[string]string{
		"CNI_COMMAND": c.Command, "CNI_CONTAINERID": c.ContainerID, "CNI_NETNS": c.Netns,
		"CNI_IFNAME": c.Interface, "CNI_ARGS": c.Args, "CNI_PATH": "/opt/cni/bin",
	} {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Env = append(command.Env, c.Extra...)
	command.Env = append(command.Env, "PATH="+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(c.Config), &stdout, &stderr
	started := time.Now()
	err := command.Run()
	outcome := Outcome{Stdout: stdout.String(), Stderr: stderr.String(), Wall: time.Since(started)}
	if command.ProcessState != nil {
		outcome.Processor = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit):
		t.Fatalf("%s %s: %v", c.Program, c.Command, err)
	default:
		outcome.Err = &types.Error{}
		if err := json.Unmarshal(stdout.Bytes(), outcome.Err); err != nil || outcome.Err.Code == 0 || outcome.Err.Msg == "" {
			t.Fatalf("%s %s: %v without a CNI error\nstdout: %s\nstderr: %s",
				c.Program, c.Command, exit, stdout.String(), stderr.String())
		}
	}
	return outcome
}
