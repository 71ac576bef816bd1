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

// Armed says whether this build can be made to die.
const Armed = true

// RAILWRIGHT_FAILPOINT=NAME dies at the first time that step is reached, RAILWRIGHT_FAILPOINT=NAME:3 at the third.
const environment = "RAILWRIGHT_FAILPOINT"

type trigger struct {
	name  Name
	times int64
}

var (
	armed   = sync.OnceValue(func() trigger { return read(os.Getenv(environment)) })
	reached atomic.Int64
)

// read panics on nonsense: a test that asks for a step that is none would pass without having tried anything.
func read(text string) trigger {
	if text == "" {
		return trigger{}
	}
	name, count, counted := strings.Cut(text, ":")
	times := int64(1)
	if counted {
		parsed, err := strconv.ParseInt(count, 10, 32)
		if err != nil || parsed < 1 {
			panic(fmt.Sprintf("%s=%.80q: the number after the colon must be 1 or more", environment, text))
		}
		times = parsed
	}
	if !Known(Name(name)) {
		panic(fmt.Sprintf("%s=%.80q names no step", environment, text))
	}
	return trigger{Name(name), times}
}

// Reach dies here if the environment says so; a step without a name is none.
func Reach(name Name) {
	if want := armed(); name == "" || want.name != name || reached.Add(1) < want.times {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
