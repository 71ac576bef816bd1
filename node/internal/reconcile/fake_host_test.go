package reconcile

import (
	"fmt"
	"io/fs"
	"net/netip"
	"sync"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
)

// fakeLinks has every interface, and all are up.
type fakeLinks struct{}

func (fakeLinks) Up(string) (bool, error)                 { return true, nil }
func (fakeLinks) Gone(string) bool                        { return false }
func (fakeLinks) Within([]netip.Prefix) ([]string, error) { return nil, nil }

// fakePods are alive unless a test sets another state.
type fakePods struct {
	mutex sync.Mutex
	lives map[string]collect.Life
	boot  string
}

func (f *fakePods) set(netns string, life collect.Life) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.lives[netns] = life
}

func (f *fakePods) Boot() string { return f.boot }

func (f *fakePods) Identify(path string) (uint64, error) {
	if path == "/run/netns/none" {
		return 0, fmt.Errorf("no such namespace: %w", fs.ErrNotExist)
	}
	return 42, nil
}

func (f *fakePods) Life(record attachment.Attachment, boot string) (collect.Life, string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if boot != f.boot {
		return collect.Gone, "another boot"
	}
	if life, found := f.lives[record.Netns]; found {
		return life, "as the test says"
	}
	return collect.Alive, ""
}
