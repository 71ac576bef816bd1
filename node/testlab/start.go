package testlab

import (
	"os/exec"
	"runtime"
	"sync"
	"testing"
)

// Start a command that has a death signal so that the signal comes when this process ends, not earlier: the kernel sends
// it with the thread that made the child.
func Start(command *exec.Cmd) error {
	failed := make(chan error)
	lastingThread <- func() { failed <- command.Start() }
	return <-failed
}

var lastingThread = func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for task := range work {
			task()
		}
	}()
	return work
}()

// AtOnce does tasks beside each other; one that fails fails the test, one that skips skips it.
func AtOnce(t testing.TB, tasks ...func()) {
	t.Helper()
	var group sync.WaitGroup
	for _, task := range tasks {
		group.Go(task)
	}
	group.Wait()
	// t.FailNow of a task only ended that task's goroutine.
	if t.Failed() {
		t.FailNow()
	}
	if t.Skipped() {
		t.SkipNow()
	}
}
