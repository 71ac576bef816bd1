package reconcile

import (
	"context"
	"sync"

	"railwright/node/internal/attachment"
)

// keyLocks let one request at a time work on a key.
type keyLocks struct {
	mutex sync.Mutex
	held  map[attachment.Key]*keyLock
}

type keyLock struct {
	free chan struct{}
	// users hold it or wait for it.
	users int
}

// lock waits for the key until ctx ends.
func (locks *keyLocks) lock(ctx context.Context, key attachment.Key) (unlock func(), err error) {
	lock := locks.enter(key)
	select {
	case <-lock.free:
		return func() { locks.leave(key, lock, true) }, nil
	case <-ctx.Done():
		locks.leave(key, lock, false)
		return nil, ctx.Err()
	}
}

// try takes the key if nobody has it.
func (locks *keyLocks) try(key attachment.Key) (unlock func(), taken bool) {
	lock := locks.enter(key)
	select {
	case <-lock.free:
		return func() { locks.leave(key, lock, true) }, true
	default:
		locks.leave(key, lock, false)
		return nil, false
	}
}

func (locks *keyLocks) enter(key attachment.Key) *keyLock {
	locks.mutex.Lock()
	defer locks.mutex.Unlock()
	if locks.held == nil {
		locks.held = map[attachment.Key]*keyLock{}
	}
	lock, found := locks.held[key]
	if !found {
		lock = &keyLock{free: make(chan struct{}, 1)}
		lock.free <- struct{}{}
		locks.held[key] = lock
	}
	lock.users++
	return lock
}

func (locks *keyLocks) leave(key attachment.Key, lock *keyLock, held bool) {
	locks.mutex.Lock()
	defer locks.mutex.Unlock()
	if held {
		lock.free <- struct{}{}
	}
	if lock.users--; lock.users == 0 {
		delete(locks.held, key)
	}
}
