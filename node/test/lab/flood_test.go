package lab

import (
	"encoding/json"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"railwright/node/testlab"
)

const (
	streamsOfAFlood = 4
	floodBlock      = 64 << 10
	floodBuffer     = 256 << 10
)

// flood sends as much as a few TCP connections can carry from one pod to another.
type flood struct {
	out, in   []*net.TCPConn
	ending    atomic.Bool
	sent, got atomic.Uint64
	ended     sync.WaitGroup
}

func newFlood(t testing.TB, f flow) *flood {
	t.Helper()
	made := &flood{}
	for range streamsOfAFlood {
		out, in := connect(t, f.from, f.to)
		_ = out.SetWriteBuffer(floodBuffer) // queued data must be delivered before the next flood
		made.out, made.in = append(made.out, out), append(made.in, in)
	}
	for n := range made.out {
		made.ended.Go(func() { made.send(made.out[n]) })
		made.ended.Go(func() { made.receive(made.in[n]) })
	}
	t.Cleanup(func() { made.ending.Store(true) })
	return made
}

func (f *flood) send(connection *net.TCPConn) {
	defer func() { _ = connection.CloseWrite() }()
	for block := make([]byte, floodBlock); !f.ending.Load(); {
		length, err := connection.Write(block)
		f.sent.Add(uint64(length))
		if err != nil {
			return
		}
	}
}

func (f *flood) receive(connection *net.TCPConn) {
	buffer := make([]byte, floodBlock)
	for {
		length, err := connection.Read(buffer)
		f.got.Add(uint64(length))
		if err != nil {
			return
		}
	}
}

// stop stops sending, waits until all data has arrived, and returns the bytes sent and received.
func (f *flood) stop(t testing.TB) (sent, got uint64) {
	t.Helper()
	f.ending.Store(true)
	for n := range f.out {
		_ = f.out[n].SetWriteDeadline(time.Now().Add(20 * time.Second))
		_ = f.in[n].SetReadDeadline(time.Now().Add(30 * time.Second))
	}
	f.ended.Wait()
	return f.sent.Load(), f.got.Load()
}

// receivedBytes returns the bytes that each flood has received up to now.
func receivedBytes(floods []*flood) []uint64 {
	var found []uint64
	for _, f := range floods {
		found = append(found, f.got.Load())
	}
	return found
}

// seen holds the kernel's counters of an interface.
type seen struct {
	in, out traffic
	dropped uint64 // by its queue
}

type traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (tr traffic) less(other traffic) traffic {
	return traffic{tr.Packets - other.Packets, tr.Bytes - other.Bytes}
}

func (tr traffic) and(other traffic) traffic {
	return traffic{tr.Packets + other.Packets, tr.Bytes + other.Bytes}
}

func look(t testing.TB, namespace *testlab.Namespace, face string) seen {
	t.Helper()
	var links []struct {
		Counters struct{ RX, TX traffic } `json:"stats64"`
	}
	var queues []struct {
		Drops uint64 `json:"drops"`
	}
	ask(t, &links, "ip", "-netns", namespace.Name, "-json", "-statistics", "link", "show", "dev", face)
	ask(t, &queues, "tc", "-netns", namespace.Name, "-json", "-statistics", "qdisc", "show", "dev", face)
	if len(links) != 1 || len(queues) == 0 {
		t.Fatalf("%s of %s: %d interfaces, %d queues", face, namespace.Name, len(links), len(queues))
	}
	return seen{in: links[0].Counters.RX, out: links[0].Counters.TX, dropped: queues[0].Drops}
}

func ask(t testing.TB, answer any, arguments ...string) {
	t.Helper()
	output, err := exec.Command(arguments[0], arguments[1:]...).Output()
	if err == nil {
		err = json.Unmarshal(output, answer)
	}
	if err != nil {
		t.Fatalf("%v: %v: %s", arguments, err, output)
	}
}
