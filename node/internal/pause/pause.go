// Package pause waits between two tries.
package pause

import (
	"context"
	"time"
)

// For waits and returns false if ctx ended.
func For(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
