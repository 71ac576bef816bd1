package reconcile

import (
	"fmt"
	"slices"
	"sync"
)

// diary records changes of the outside in order.
type diary struct {
	mutex sync.Mutex
	lines []string
}

func (d *diary) write(format string, values ...any) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, values...))
}

func (d *diary) all() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.Clone(d.lines)
}

func (d *diary) count(line string) int {
	count := 0
	for _, entry := range d.all() {
		if entry == line {
			count++
		}
	}
	return count
}
