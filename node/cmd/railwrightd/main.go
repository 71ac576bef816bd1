// Railwrightd manages the pods' GPU network of a node: it keeps the flows of the rails' bridges and the host routes
// that FRR announces in the state that the CNI plugins requested.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"railwright/node/internal/config"
)

// Exit statuses.
const (
	exitOK      = 0
	exitBad     = 1
	exitMisuse  = 2
	exitFailure = 3
)

const usage = `railwrightd manages the pods' GPU network of this node

  railwrightd [--config FILE]                 serve the CNI plugins until SIGTERM
  railwrightd --check-config [--config FILE]  check the configuration and the rights of this process, print all problems
                                              and exit: 2 invalid file, 1 missing right, 3 unknown right
  railwrightd check-networks FILE             check the chains in a conflist, in NetworkAttachmentDefinitions, or in - (kubectl
                                              get net-attach-def -A -o yaml): 1 a chain is slow, 3 a chain is unknown
  railwrightd --version                       print the version
  railwrightd list   [--json] [--socket PATH] list the attachments of the running daemon
  railwrightd status [--json] [--socket PATH] print its rails and problems; exit status 1 if there are any
  railwrightd flows  [--json] [--config FILE] list the datapath's cached flows and where they run
  railwrightd frr-config --router-id ADDRESS [--asn N] [--bfd] [--config FILE]
                                              print FRR's configuration for the rails, with filters for their pods
  railwrightd forget NODE [--config FILE]     declare a node permanently off
  railwrightd sweep [--config FILE] [--metrics ADDRESS]
                                              free what machines hold that are off, until SIGTERM (tenants of kind
                                              kubernetes)
  railwrightd epoch NODE,...|none [--config FILE]
                                              after the tenant directory was restored from a backup: publish again,
                                              and wait for the nodes that joined after the backup
`

// verb executes a subcommand and returns the exit status.
type verb func(ctx context.Context, arguments []string, out io.Writer) (int, error)

// usageError is an error in the arguments or the configuration.
type usageError struct{ error }

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, arguments []string) int {
	verbs := map[string]verb{
		"list": list, "status": status, "flows": flows, "frr-config": frrConfig, "forget": forget, "epoch": epoch, "sweep": sweep,
		"check-networks": checkNetworks,
	}
	chosen := verb(serve)
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		named, known := verbs[arguments[0]]
		if !known {
			fmt.Fprintf(os.Stderr, "railwrightd: unknown verb %.40q\n\n%s", arguments[0], usage)
			return exitMisuse
		}
		chosen, arguments = named, arguments[1:]
	}
	code, err := chosen(ctx, arguments, os.Stdout)
	var wrong usageError
	switch {
	case err == nil:
		return code
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(os.Stdout, usage)
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(os.Stderr, "railwrightd: %v\n", err)
		return exitMisuse
	}
	fmt.Fprintf(os.Stderr, "railwrightd: %v\n", err)
	return exitFailure
}

// options are the options of all verbs. A verb accepts those that it names.
type options struct {
	config, node, metrics, socket, logLevel string
	asn, routerID                           string
	check, json, bfd, version               bool
}

// parse parses the arguments with the given number of operands.
func parse(verb string, arguments []string, operands int, named ...string) (options, []string, error) {
	var opts options
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	define := map[string]func(){
		"config":       func() { flags.StringVar(&opts.config, "config", "/etc/railwright/railwrightd.yaml", "") },
		"node":         func() { flags.StringVar(&opts.node, "node", "", "") },
		"metrics":      func() { flags.StringVar(&opts.metrics, "metrics", "", "") },
		"socket":       func() { flags.StringVar(&opts.socket, "socket", config.DefaultSocket, "") },
		"log-level":    func() { flags.StringVar(&opts.logLevel, "log-level", "info", "") },
		"asn":          func() { flags.StringVar(&opts.asn, "asn", "", "") },
		"router-id":    func() { flags.StringVar(&opts.routerID, "router-id", "", "") },
		"bfd":          func() { flags.BoolVar(&opts.bfd, "bfd", false, "") },
		"check-config": func() { flags.BoolVar(&opts.check, "check-config", false, "") },
		"version":      func() { flags.BoolVar(&opts.version, "version", false, "") },
		"json":         func() { flags.BoolVar(&opts.json, "json", false, "") },
	}
	for _, name := range named {
		define[name]()
	}
	// Options may precede and follow the operands.
	var plain []string
	for rest := arguments; ; rest = flags.Args()[1:] {
		if err := flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return opts, nil, err
			}
			return opts, nil, usageError{fmt.Errorf("%w; valid options are --%s", err,
				strings.Join(slices.Sorted(slices.Values(named)), ", --"))}
		}
		if flags.NArg() == 0 {
			break
		}
		plain = append(plain, flags.Arg(0))
	}
	if len(plain) != operands {
		return opts, nil, usageError{fmt.Errorf("%s takes %d arguments, got %d: %q", verb, operands, len(plain), plain)}
	}
	return opts, plain, nil
}
