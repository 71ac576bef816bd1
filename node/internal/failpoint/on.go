//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Armed reports whether this build has failpoints.
const Armed = true

// environment names the variable: NAME kills the process the first time that the step is reached, NAME:3 the third
// time.
const environment = "RAILWRIGHT_FAILPOINT"

type trigger struct {
	name  Name
	times int64
}

var (
	armed   = sync.OnceValue(func() trigger { return read(os.Getenv(environment)) })
	reached atomic.Int64
)

// read panics on invalid input: a test that names an unknown step would otherwise pass without testing anything.
func read(text string) trigger {
	if text == "" {
		return trigger{}
	}
	name, count, counted := strings.Cut(text, ":")
	times := int64(1)
	if counted {
		parsed, err := strconv.ParseInt(count, 10, 32)
		if err != nil || parsed < 1 {
			panic(fmt.Sprintf("%s=%.80q: count after the colon must be at least 1", environment, text))
		}
		times = parsed
	}
	if !Known(Name(name)) {
		panic(fmt.Sprintf("%s=%.80q unknown step", environment, text))
	}
	return trigger{Name(name), times}
}

// Reach kills the process if the environment names the step. A step without a name never does.
func Reach(name Name) {
	if want := armed(); name == "" || want.name != name || reached.Add(1) < want.times {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
