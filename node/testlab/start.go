package testlab

import "os/exec"

// Start a command of any namespace that has a death signal: the signal comes when this process ends, not earlier.
func Start(command *exec.Cmd) error { return startFromLastingThread(command) }
