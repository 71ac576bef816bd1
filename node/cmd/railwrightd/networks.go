package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// ovs-cni polls its port until the link is up: by default five times, every 600 ms.
const (
	defaultPoll, longestPoll       = 600 * time.Millisecond, 50 * time.Millisecond
	defaultPolls                   = 5
	shortestPatience               = time.Second
	pollRemedy                     = `set "link_state_check_interval": 10 and "link_state_check_retries": 300 in the plugin ovs`
	maxNetworksBytes         int64 = 64 << 20
)

// network is a NetworkAttachmentDefinition, a list of them, or the chain of a network.
type network struct {
	Kind     string
	Metadata struct{ Namespace, Name string }
	Spec     struct{ Config string }
	Items    []network

	Name    string
	Plugins []chained
	chained
}

// chained has the fields of a plugin that its chain is checked for.
type chained struct {
	Type     string
	Interval int64 `json:"link_state_check_interval"`
	Retries  int64 `json:"link_state_check_retries"`
}

// checkNetworks checks the chains of networks in a file, or in standard input for "-".
func checkNetworks(_ context.Context, arguments []string, out io.Writer) (int, error) {
	_, operands, err := parse("check-networks", arguments, 1)
	if err != nil {
		return 0, err
	}
	file := os.Stdin
	if operands[0] != "-" {
		if file, err = os.Open(operands[0]); err != nil {
			return 0, usageError{err}
		}
		defer file.Close()
	}
	checked := networkCheck{out: out}
	decoder := yaml.NewYAMLOrJSONDecoder(io.LimitReader(file, maxNetworksBytes), 4096)
	for {
		var found network
		err := decoder.Decode(&found)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, usageError{fmt.Errorf("%s must hold NetworkAttachmentDefinitions or conflists: %w", operands[0], err)}
		}
		checked.add(found)
	}
	if checked.count == 0 {
		return 0, usageError{fmt.Errorf("%s holds no network; kubectl get network-attachment-definitions -A -o yaml prints them", operands[0])}
	}
	checked.print("%d networks\n", checked.count)
	return checked.code, checked.failed
}

// networkCheck prints the problems of networks. Its code is the exit status.
type networkCheck struct {
	out         io.Writer
	count, code int
	failed      error
}

func (c *networkCheck) print(format string, values ...any) {
	_, err := fmt.Fprintf(c.out, format, values...)
	c.failed = errors.Join(c.failed, err)
}

func (c *networkCheck) add(found network) {
	for _, item := range found.Items {
		c.add(item)
	}
	name := found.Name
	if found.Kind == "NetworkAttachmentDefinition" {
		name = found.Metadata.Name
		if found.Metadata.Namespace != "" {
			name = found.Metadata.Namespace + "/" + name
		}
		if found.Spec.Config == "" {
			c.count++
			c.code = max(c.code, exitFailure)
			c.print("unknown: %s: its chain is in a file on the nodes; check that file in /etc/cni/multus/net.d\n", plain(name))
			return
		}
		config := found.Spec.Config
		found = network{}
		if err := json.Unmarshal([]byte(config), &found); err != nil {
			c.count++
			c.problem(name, fmt.Sprintf("spec.config must be the JSON of a chain: %v", err))
			return
		}
	}
	plugins := found.Plugins
	if found.Type != "" {
		plugins = append(plugins, found.chained)
	}
	if len(plugins) > 0 {
		c.count++
	}
	for _, plugin := range plugins {
		if problem := plugin.problem(); problem != "" {
			c.problem(name, problem)
		}
	}
}

func (c *networkCheck) problem(name, problem string) {
	c.code = exitBad
	c.print("problem: %s: %s\n", plain(name), plain(problem))
}

// problem returns what slows or fails an ADD of the plugin, or "".
func (p chained) problem() string {
	if p.Type != "ovs" {
		return ""
	}
	poll, polls := time.Duration(p.Interval)*time.Millisecond, p.Retries
	if poll == 0 {
		poll = defaultPoll
	}
	if polls == 0 {
		polls = defaultPolls
	}
	switch patience := poll * time.Duration(polls); {
	case poll > longestPoll:
		return fmt.Sprintf("ovs looks at its port every %v, so most ADDs sleep for %v; %s", poll, poll, pollRemedy)
	case patience < shortestPatience:
		return fmt.Sprintf("ovs gives its port %v to come up, and fails an ADD on a busy node; %s", patience, pollRemedy)
	}
	return ""
}
