package lab

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railwright/node/testlab/railnode"
)

const (
	echoPort = 7777
	// probeEvery is long enough that an interface's queue does not overflow while ovs-vswitchd stalls for a few seconds
	// (it stalls for one when ovsdb-server dies). The queue holds 212,992 bytes, and a small datagram takes 768.
	probeEvery = 40 * time.Millisecond
	// forStragglers is the time after which missing datagrams count as lost.
	forStragglers = time.Second
)

// pace returns the interval of probes. Measurements use a shorter one, which resolves outages to 10 ms.
func pace() time.Duration {
	if railnode.Measuring() != "" {
		return 10 * time.Millisecond
	}
	return probeEvery
}

// probe sends numbered datagrams from one pod to another, which sends them back. Both pods count them.
type probe struct {
	from, to *net.UDPConn
	interval time.Duration

	mutex   sync.Mutex
	sent    int
	arrived map[uint64]bool // at the other pod
	back    map[uint64]time.Time
	began   time.Time
	end     chan struct{}
	sending sync.WaitGroup
	ended   sync.WaitGroup
}

// tally is the result of a probe.
type tally struct {
	sent, arrived, back int
	// outage is the longest time without an answer while the probe was sending.
	outage time.Duration
}

func listen(pod *pod, address netip.Addr, port int) (*net.UDPConn, error) {
	var made *net.UDPConn
	err := pod.Within(func() (err error) {
		made, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, uint16(port))))
		return err
	})
	return made, err
}

// newProbe starts a probe between interfaces of two pods, of address family 4 or 6.
func newProbe(t testing.TB, from, to *attached, family int, interval time.Duration) *probe {
	t.Helper()
	made := &probe{interval: interval, arrived: map[uint64]bool{}, back: map[uint64]time.Time{}, end: make(chan struct{})}
	var err error
	made.to, err = listen(to.pod, to.address(family), 0)
	if err != nil {
		t.Fatal(err)
	}
	made.from, err = listen(from.pod, from.address(family), 0)
	if err != nil {
		t.Fatal(err)
	}
	target := made.to.LocalAddr().(*net.UDPAddr).AddrPort()
	made.began = time.Now()
	made.ended.Go(made.echo)
	made.ended.Go(made.collect)
	made.sending.Go(func() { made.send(target) })
	t.Cleanup(made.close)
	return made
}

func (p *probe) send(target netip.AddrPort) {
	ticks := time.NewTicker(p.interval)
	defer ticks.Stop()
	for number := uint64(1); ; number++ {
		p.mutex.Lock()
		p.sent++
		p.mutex.Unlock()
		// A datagram that cannot be sent counts as lost.
		_, _ = p.from.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, number), target)
		select {
		case <-p.end:
			return
		case <-ticks.C:
		}
	}
}

func (p *probe) echo() {
	buffer := make([]byte, 64)
	for {
		length, sender, err := p.to.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && length == 8 {
			p.mutex.Lock()
			p.arrived[binary.BigEndian.Uint64(buffer)] = true
			p.mutex.Unlock()
			_, _ = p.to.WriteToUDPAddrPort(buffer[:length], sender)
		}
	}
}

func (p *probe) collect() {
	buffer := make([]byte, 64)
	for {
		length, _, err := p.from.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && length == 8 {
			p.mutex.Lock()
			p.back[binary.BigEndian.Uint64(buffer)] = time.Now()
			p.mutex.Unlock()
		}
	}
}

// countAnswered returns the number of answers up to now.
func (p *probe) countAnswered() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return len(p.back)
}

// stop stops sending, waits up to patience until all datagrams are back, and returns the tally.
func (p *probe) stop(patience time.Duration) tally {
	close(p.end)
	p.sending.Wait()
	ceased := time.Now()
	for until := ceased.Add(patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		p.mutex.Lock()
		all := len(p.back) == p.sent
		p.mutex.Unlock()
		if all {
			break
		}
	}
	p.close()
	return tally{
		sent: p.sent, arrived: len(p.arrived), back: len(p.back),
		outage: outage(p.began, ceased, p.sent, p.back),
	}
}

// outage returns the longest time without an answer, from the first datagram until sending ceased. The wait after that
// does not count.
func outage(began, ceased time.Time, sent int, back map[uint64]time.Time) time.Duration {
	longest, last := time.Duration(0), began
	for number := uint64(1); number <= uint64(sent); number++ {
		if at, came := back[number]; came {
			longest = max(longest, at.Sub(last))
			last = at
		}
	}
	return max(longest, ceased.Sub(last))
}

func (p *probe) close() {
	select {
	case <-p.end:
	default:
		close(p.end)
	}
	_ = errors.Join(p.from.Close(), p.to.Close())
	p.sending.Wait()
	p.ended.Wait()
}

// reaches sends a few datagrams and returns how many arrived and how many came back.
func reaches(t testing.TB, from, to *attached, family, count int) tally {
	t.Helper()
	return reachesWithin(t, from, to, family, count, patience)
}

func reachesWithin(t testing.TB, from, to *attached, family, count int, bound time.Duration) tally {
	t.Helper()
	made := newProbe(t, from, to, family, time.Millisecond)
	for until := time.Now().Add(bound); made.countAnswered() < count && time.Now().Before(until); {
		time.Sleep(2 * time.Millisecond)
	}
	return made.stop(max(bound, forStragglers))
}

// stream is a TCP connection between two pods whose data the receiver verifies.
type stream struct {
	from, to *net.TCPConn
	end      chan struct{}
	ended    sync.WaitGroup

	sent, got uint64
	failed    error
	pause     time.Duration // the longest time without data
}

const streamWords = 128

func newStream(t testing.TB, from, to *attached) *stream {
	t.Helper()
	made := &stream{end: make(chan struct{})}
	made.from, made.to = connect(t, from, to)
	made.ended.Go(made.write)
	made.ended.Go(made.read)
	return made
}

// connect connects two pods by TCP. Both ends are closed at the end of the test.
func connect(t testing.TB, from, to *attached) (out, in *net.TCPConn) {
	t.Helper()
	var listener *net.TCPListener
	err := to.pod.Within(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.ipv4, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// net.Dial could create the socket on another thread, in another namespace.
	descriptor := -1
	err = from.pod.Within(func() (err error) {
		descriptor, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(descriptor, &unix.SockaddrInet4{Addr: from.ipv4.As4()})
		}
		if err == nil {
			port := listener.Addr().(*net.TCPAddr).Port
			err = unix.Connect(descriptor, &unix.SockaddrInet4{Addr: to.ipv4.As4(), Port: port})
		}
		return err
	})
	if err != nil {
		t.Fatalf("connect by TCP: %v", err)
	}
	file := os.NewFile(uintptr(descriptor), "stream")
	made, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	out = made.(*net.TCPConn)
	in, err = listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(out.Close(), in.Close()) })
	return out, in
}

func (s *stream) write() {
	defer func() { _ = s.from.CloseWrite() }()
	ticks := time.NewTicker(pace())
	defer ticks.Stop()
	for {
		var block []byte
		for range streamWords {
			block = binary.BigEndian.AppendUint64(block, s.sent)
			s.sent++
		}
		if _, err := s.from.Write(block); err != nil {
			s.failed = err
			return
		}
		select {
		case <-s.end:
			return
		case <-ticks.C:
		}
	}
}

// read reads until the sender is done. Each word must be the next one in sequence.
func (s *stream) read() {
	buffer, kept, last := make([]byte, 64<<10), []byte{}, time.Now()
	for {
		length, err := s.to.Read(buffer)
		s.pause = max(s.pause, time.Since(last))
		last = time.Now()
		kept = append(kept, buffer[:length]...)
		for ; len(kept) >= 8; kept = kept[8:] {
			if binary.BigEndian.Uint64(kept) != s.got {
				return
			}
			s.got++
		}
		if err != nil {
			return
		}
	}
}

// stop ends the stream and fails the test unless all data arrived in order. It returns the longest pause and the number
// of retransmissions.
func (s *stream) stop(t testing.TB) (pause time.Duration, again uint32) {
	t.Helper()
	close(s.end)
	_ = s.to.SetReadDeadline(time.Now().Add(patience))
	s.ended.Wait()
	if s.failed != nil || s.got != s.sent {
		t.Errorf("TCP stream: %d of %d words arrived: %v", s.got, s.sent, s.failed)
	}
	raw, err := s.from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(descriptor uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(descriptor), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			again = info.Total_retrans
		}
	})
	return s.pause, again
}

func sendTo(socket *net.UDPConn, to netip.Addr, text []byte) error {
	_, err := socket.WriteToUDPAddrPort(text, netip.AddrPortFrom(to, echoPort))
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}
