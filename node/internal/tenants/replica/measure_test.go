package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"railwright/node/internal/tenants"
)

// countingStore is an in-memory store that counts writes, with the pace of the kind kubernetes.
type countingStore struct {
	mutex    sync.Mutex
	records  map[string]*tenants.Record
	sequence uint64
	writes   int
	bytes    int
	moved    chan struct{}
}

func (c *countingStore) Publish(_ context.Context, record *tenants.Record) error {
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.records[record.ID()] = record
	c.writes++
	c.bytes += len(content)
	close(c.moved)
	c.moved = make(chan struct{})
	return nil
}

func (c *countingStore) Read(context.Context) (tenants.Snapshot, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sequence++
	snapshot := tenants.Snapshot{Sequence: c.sequence, Records: map[string]*tenants.Record{}, Policy: &tenants.Policy{}}
	for id, record := range c.records {
		snapshot.Records[id] = record
	}
	return snapshot, nil
}

func (c *countingStore) Watch(ctx context.Context, changed func(tenants.Snapshot), _ func(error)) {
	for sleep(ctx, 100*time.Millisecond) {
		c.mutex.Lock()
		moved := c.moved
		c.mutex.Unlock()
		snapshot, _ := c.Read(ctx)
		changed(snapshot)
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}

func (c *countingStore) Remove(context.Context, *tenants.Record) error { return nil }

func (c *countingStore) Pace(nodes int) tenants.Pace {
	return tenants.Pace{Burst: 5, Interval: 200 * time.Millisecond * time.Duration(max(1, nodes/50))}
}

func (c *countingStore) count() (writes, bytes int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.writes, c.bytes
}

// TestMeasureAHundredNodes counts the writes of 100 nodes for 1,000 addresses of 10 tenants, if RAILWRIGHT_MEASURE is
// set.
func TestMeasureAHundredNodes(t *testing.T) {
	if os.Getenv("RAILWRIGHT_MEASURE") == "" {
		t.Skip("takes minutes; set RAILWRIGHT_MEASURE=1")
	}
	store := &countingStore{records: map[string]*tenants.Record{}, moved: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all []*Replica
	for i := range 100 {
		opened, err := Open(ctx, Settings{Node: fmt.Sprintf("worker-%03d", i), Folder: filepath.Join(t.TempDir(), "state"), Store: store})
		must(t, err)
		all = append(all, opened)
		local := []string{fmt.Sprintf("ns:tenant-%d", i%10)}
		go func() {
			for ctx.Err() == nil {
				_, version, changed := opened.View(local)
				_ = opened.Confirm(ctx, version)
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}()
	}
	quiet(store)
	began, beganBytes := store.count()
	t.Logf("100 nodes known to each other: %d writes, %d bytes", began, beganBytes)
	start := time.Now()
	var wait sync.WaitGroup
	for i, replica := range all {
		wait.Go(func() {
			for j := range 10 {
				address := netip.AddrFrom4([4]byte{10, 1, byte(i), byte(j + 1)})
				claim := tenants.Claim{
					Tenant: fmt.Sprintf("ns:tenant-%d", i%10), Rail: fmt.Sprintf("rail%d", j),
					Owner: fmt.Sprintf("rail%d/%064x/net%d", j, i, j), Addresses: []netip.Addr{address},
				}
				if err := replica.Claim(ctx, claim); err != nil {
					t.Errorf("%s: %v", address, err)
				}
				if missing := replica.WaitConfirmed(ctx, claim.Addresses); len(missing) > 0 {
					t.Errorf("%s: %v", address, missing)
				}
			}
		})
	}
	wait.Wait()
	took := time.Since(start)
	writes, bytes := store.count()
	t.Logf("1,000 addresses claimed, each confirmed by the 9 other nodes of its tenant: %s, %d writes, %d bytes written", took, writes-began, bytes-beganBytes)
	quiet(store)
	writes, bytes = store.count()
	total, largest := 0, 0
	for _, record := range store.records {
		content, _ := json.Marshal(record)
		total += len(content)
		largest = max(largest, len(content))
	}
	t.Logf("at rest: %d writes in all, %d bytes written, %d bytes in 100 records, the largest %d", writes, bytes, total, largest)
}

// quiet waits until there were no writes for a while.
func quiet(store *countingStore) {
	for last, since := -1, time.Now(); time.Since(since) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		if writes, _ := store.count(); writes != last {
			last, since = writes, time.Now()
		}
	}
}
