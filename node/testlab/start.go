package testlab

import (
	"os/exec"
	"runtime"
	"sync"
	"testing"
)

// Start starts a command that has a parent death signal. It starts it on a thread that lives as long as this process,
// because the kernel sends the signal when the thread that created the child ends.
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

// AtOnce runs tasks concurrently and waits for all of them. A task that fails or skips does the same to the test.
func AtOnce(t testing.TB, tasks ...func()) {
	t.Helper()
	var group sync.WaitGroup
	for _, task := range tasks {
		group.Go(task)
	}
	group.Wait()
	// t.FailNow and t.SkipNow in a task end only that task's goroutine.
	if t.Failed() {
		t.FailNow()
	}
	if t.Skipped() {
		t.SkipNow()
	}
}
