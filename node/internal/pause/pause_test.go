package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestForWaitsUnlessTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !For(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("it waited %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if For(ctx, time.Hour) || time.Since(began) != time.Hour+time.Minute {
			t.Errorf("with a context of a minute it waited %v more", time.Since(began)-time.Hour)
		}
	})
}
