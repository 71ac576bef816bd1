package reconcile

import (
	"context"
	"sync"

	"railwright/node/internal/attachment"
)

// keyLocks allows one request at a time for each key.
type keyLocks struct {
	mutex sync.Mutex
	held  map[attachment.Key]*keyLock
}

type keyLock struct {
	free chan struct{}
	// users counts the holder and those waiting.
	users int
}

// lock waits for the key until ctx ends.
func (k *keyLocks) lock(ctx context.Context, key attachment.Key) (unlock func(), err error) {
	lock := k.enter(key)
	select {
	case <-lock.free:
		return func() { k.leave(key, lock, true) }, nil
	case <-ctx.Done():
		k.leave(key, lock, false)
		return nil, ctx.Err()
	}
}

// try takes the key if it is free.
func (k *keyLocks) try(key attachment.Key) (unlock func(), taken bool) {
	lock := k.enter(key)
	select {
	case <-lock.free:
		return func() { k.leave(key, lock, true) }, true
	default:
		k.leave(key, lock, false)
		return nil, false
	}
}

func (k *keyLocks) enter(key attachment.Key) *keyLock {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.held == nil {
		k.held = map[attachment.Key]*keyLock{}
	}
	lock, found := k.held[key]
	if !found {
		lock = &keyLock{free: make(chan struct{}, 1)}
		lock.free <- struct{}{}
		k.held[key] = lock
	}
	lock.users++
	return lock
}

func (k *keyLocks) leave(key attachment.Key, lock *keyLock, held bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if held {
		lock.free <- struct{}{}
	}
	if lock.users--; lock.users == 0 {
		delete(k.held, key)
	}
}
