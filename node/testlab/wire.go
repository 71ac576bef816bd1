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

// Wire is a raw socket on an interface in a namespace: it sends frames as they are, and counts those that come in.
type Wire struct {
	descriptor int
	lock       sync.Mutex
	incoming   [][]byte
	closing    atomic.Bool
	ended      chan struct{}
}

// mostKept bounds how many frames a wire remembers.
const mostKept = 100_000

// OpenWire on an interface; closed at the end of the test.
func OpenWire(t testing.TB, namespace *Namespace, face string) *Wire {
	t.Helper()
	wire := &Wire{ended: make(chan struct{})}
	if err := namespace.Within(func() error { return wire.open(face) }); err != nil {
		t.Fatalf("raw socket on %s of %s: %v", face, namespace.Name, err)
	}
	go wire.listen()
	t.Cleanup(func() {
		// The socket's time-out lets the listener see it.
		wire.closing.Store(true)
		<-wire.ended
		_ = unix.Close(wire.descriptor)
	})
	return wire
}

// Within runs a function on a thread that is in the namespace: sockets that it opens stay there.
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
	// The name is looked up in the thread's namespace, and so is everything about the socket.
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
		if err == nil && ok && sender.Pkttype != unix.PACKET_OUTGOING && len(w.incoming) < mostKept {
			w.incoming = append(w.incoming, append([]byte(nil), buffer[:length]...))
		}
		w.lock.Unlock()
	}
}

// Send a frame as it is.
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
			t.Fatalf("a frame of %d bytes cannot be sent: %v", len(frame), err)
		}
		runtime.Gosched()
	}
}

// Count the frames that came in and are of a kind.
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

// Forget what came in so far.
func (w *Wire) Forget() {
	w.lock.Lock()
	w.incoming = nil
	w.lock.Unlock()
}

// Frames that came in and are of a kind.
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

// FrameText shows the start of a frame in a test's complaint.
func FrameText(frame []byte) string { return fmt.Sprintf("%x", frame[:min(len(frame), 80)]) }
