package testlab

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Wire is a raw socket on an interface in a namespace. It sends frames unchanged and records those that arrive.
type Wire struct {
	descriptor int
	lock       sync.Mutex
	incoming   [][]byte
	closing    atomic.Bool
	ended      chan struct{}
}

// maxRecorded is the maximum number of frames that a Wire records. It ignores later ones.
const maxRecorded = 100_000

// OpenWire opens a Wire on an interface and closes it at the end of the test.
func OpenWire(t testing.TB, namespace *Namespace, face string) *Wire {
	t.Helper()
	wire := &Wire{ended: make(chan struct{})}
	if err := namespace.Within(func() error { return wire.open(face) }); err != nil {
		t.Fatalf("raw socket on %s of %s: %v", face, namespace.Name, err)
	}
	go wire.listen()
	t.Cleanup(func() {
		// The listener checks this after each receive timeout.
		wire.closing.Store(true)
		<-wire.ended
		_ = unix.Close(wire.descriptor)
	})
	return wire
}

// Within runs a function on a thread in the namespace. Sockets that the function opens stay in the namespace.
func (n *Namespace) Within(do func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			failed <- err
			return
		}
		defer home.Close()
		there, err := netns.GetFromPath(n.Path())
		if err == nil {
			defer there.Close()
			err = netns.Set(there)
		}
		if err == nil {
			err = errors.Join(do(), netns.Set(home))
		}
		if err == nil {
			runtime.UnlockOSThread()
		}
		failed <- err
	}()
	return <-failed
}

func (w *Wire) open(face string) error {
	// The interface and the socket belong to the namespace of this thread.
	found, err := net.InterfaceByName(face)
	if err != nil {
		return err
	}
	protocol := int(bigEndian16(unix.ETH_P_ALL))
	descriptor, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	w.descriptor = descriptor
	return errors.Join(
		unix.SetsockoptInt(descriptor, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptTimeval(descriptor, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}),
		unix.Bind(descriptor, &unix.SockaddrLinklayer{Protocol: uint16(protocol), Ifindex: found.Index}),
	)
}

func bigEndian16(value uint16) uint16 { return value<<8 | value>>8 }

func (w *Wire) listen() {
	defer close(w.ended)
	buffer := make([]byte, 65536)
	for !w.closing.Load() {
		length, from, err := unix.Recvfrom(w.descriptor, buffer, 0)
		w.lock.Lock()
		sender, ok := from.(*unix.SockaddrLinklayer)
		if err == nil && ok && sender.Pkttype != unix.PACKET_OUTGOING && len(w.incoming) < maxRecorded {
			w.incoming = append(w.incoming, append([]byte(nil), buffer[:length]...))
		}
		w.lock.Unlock()
	}
}

// Send sends a frame, padded with zeros to 60 bytes.
func (w *Wire) Send(t testing.TB, frame []byte) {
	t.Helper()
	if len(frame) < 60 {
		frame = append(frame, make([]byte, 60-len(frame))...)
	}
	for until := time.Now().Add(5 * time.Second); ; {
		_, err := unix.Write(w.descriptor, frame)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.ENOBUFS) || time.Now().After(until) {
			t.Fatalf("send a frame of %d bytes: %v", len(frame), err)
		}
		runtime.Gosched()
	}
}

// Count returns the number of recorded frames for which kind returns true.
func (w *Wire) Count(kind func(frame []byte) bool) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	count := 0
	for _, frame := range w.incoming {
		if kind(frame) {
			count++
		}
	}
	return count
}

// Forget discards the recorded frames.
func (w *Wire) Forget() {
	w.lock.Lock()
	w.incoming = nil
	w.lock.Unlock()
}

// Frames returns the recorded frames for which kind returns true.
func (w *Wire) Frames(kind func(frame []byte) bool) [][]byte {
	w.lock.Lock()
	defer w.lock.Unlock()
	var found [][]byte
	for _, frame := range w.incoming {
		if kind(frame) {
			found = append(found, frame)
		}
	}
	return found
}

// FrameText returns the first 80 bytes of a frame in hexadecimal, for failure messages.
func FrameText(frame []byte) string { return fmt.Sprintf("%x", frame[:min(len(frame), 80)]) }
