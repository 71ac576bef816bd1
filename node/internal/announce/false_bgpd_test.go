package announce

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// fakeBGPD serves a socket with the given handler, as another process in bgpd's place or a broken bgpd would.
func fakeBGPD(t *testing.T, answer func(connection net.Conn, command string) bool) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "rwt-false-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "bgpd.vty")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				commands := bufio.NewReader(connection)
				for {
					command, err := commands.ReadString(0)
					if err != nil || !answer(connection, strings.TrimSuffix(command, "\x00")) {
						return
					}
				}
			}()
		}
	}()
	return socket
}

// replyWith returns a handler that replies with the text to every command but `enable`.
func replyWith(text string) func(net.Conn, string) bool {
	return func(connection net.Conn, command string) bool {
		if command == "enable" {
			text := "\x00\x00\x00\x00"
			_, err := connection.Write([]byte(text))
			return err == nil
		}
		_, err := connection.Write([]byte(text))
		return err == nil
	}
}

func fakeSettings(socket string) Settings {
	return Settings{Socket: socket, Rails: []RailSettings{{
		Name: "rail0", Bridge: "br-rail0", Table: 7700, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
	}}}
}

var fakeRail = plan.Rail{Name: "rail0", Bridge: "br-rail0", Table: 7700}

// noReply is expected when no reply arrives within the caller's time.
const noReply = "no reply"

// hostileCase is a reply to every command, and the pattern that the error of Session must match.
type hostileCase struct {
	name   string
	answer func(net.Conn, string) bool
	want   string
}

func hostileCases() []hostileCase {
	end := "\x00\x00\x00\x00"
	endless := strings.Repeat("a", 1<<20)
	return []hostileCase{
		{"nothing", func(net.Conn, string) bool { return true }, noReply},
		{"closes", func(net.Conn, string) bool { return false }, "EOF"},
		{"half a reply", replyWith(`{"br-rail0":{`), noReply},
		{"endless", func(connection net.Conn, _ string) bool {
			for {
				if _, err := connection.Write([]byte(endless)); err != nil {
					return false
				}
			}
		}, "at most 16 MiB|no reply within 2s"},
		{"drop by drop", func(connection net.Conn, _ string) bool {
			for {
				if _, err := connection.Write([]byte("a")); err != nil {
					return false
				}
				time.Sleep(50 * time.Millisecond)
			}
		}, "no reply within 2s"},
		{"NUL within", replyWith("{\x00}" + end), "NUL before its end"},
		{"more behind the end", replyWith("{}" + end + "{}"), "NUL before its end"},
		{"no JSON", replyWith("<html>\n\x1b[31m" + end), "must be JSON"},
		{"other JSON", replyWith(`{"br-rail0":[1]}` + end), "got array"},
		{"a number for a word", replyWith(`{"br-rail0":{"bgpState":7}}` + end), "got number"},
		{"deep JSON", replyWith(strings.Repeat(`{"a":`, 200000) + end), "must be JSON"},
		{"refuses", replyWith("% Unknown command\n\x00\x00\x00\x02"), "refused"},
		{"not configured", replyWith("% BGP instance not found\n" + end), "BGP instance not found"},
		{"another's neighbor", replyWith(`{"eth9":{"bgpState":"Established"}}` + end), "no neighbor br-rail0"},
	}
}

func TestHostileRepliesAreErrorsInBoundedTime(t *testing.T) {
	t.Parallel()
	for _, test := range hostileCases() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

func (h hostileCase) run(t *testing.T) {
	vty, err := NewVty(fakeSettings(fakeBGPD(t, h.answer)))
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Minute // above the exchange's own limits
	if h.want == noReply {
		limit = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err = vty.Session(ctx, fakeRail)
	if err == nil || !regexp.MustCompile(h.want).MatchString(err.Error()) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x1b\n\x00") {
		t.Errorf("session: %v", err)
	}
	if limit == time.Minute && ctx.Err() != nil {
		t.Error("caller's deadline expired first")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = vty.WaitAdvertised(ctx, fakeRail, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")})
	if !errors.Is(err, ErrNotAdvertised) || len(err.Error()) > 600 {
		t.Errorf("wait: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := vty.Sync(ctx, fakeRail, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}); err == nil {
		t.Error("Sync succeeded")
	}
}

func TestTextFromBgpdIsEscapedAndShortened(t *testing.T) {
	state := strings.Repeat("x", 5000) + `\u001b[31m\n`
	socket := fakeBGPD(t, replyWith(`{"br-rail0":{"bgpState":"`+state+`","lastNotificationReason":"\u0007`+state+`"}}`+"\x00\x00\x00\x00"))
	vty, err := NewVty(fakeSettings(socket))
	if err != nil {
		t.Fatal(err)
	}
	session, err := vty.Session(t.Context(), fakeRail)
	if err != nil || session.Established || len(session.State) > 400 || strings.ContainsAny(session.State, "\x1b\n\x07") {
		t.Errorf("%q, %v", session.State, err)
	}
}

func TestVtyNeverCreatesAnInstance(t *testing.T) {
	for name, running := range map[string]string{
		"no instance":        "frr version 8.4.4\n!\nhostname x\n",
		"instance of a VRF":  "router bgp 65101 vrf blue\n address-family ipv4 unicast\n  network 10.0.0.1/32 route-map railwright-rail0\n",
		"instance of a view": "router bgp 65101 view blue\n",
	} {
		t.Run(name, func(t *testing.T) {
			var configured atomic.Bool
			socket := fakeBGPD(t, func(connection net.Conn, command string) bool {
				text := ""
				switch command {
				case "enable":
				case "show running-config":
					text = running
				default:
					configured.Store(true)
				}
				_, err := connection.Write([]byte(text + "\x00\x00\x00\x00"))
				return err == nil
			})
			vty, err := NewVty(fakeSettings(socket))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = vty.Sync(t.Context(), fakeRail, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")})
			if !errors.Is(err, ErrNotReady) || configured.Load() {
				t.Errorf("configured %v, %v", configured.Load(), err)
			}
		})
	}
}

// TestCancelledWaitLeavesOthersWaiting checks that a cancelled wait does not end the waits that share its look.
func TestCancelledWaitLeavesOthersWaiting(t *testing.T) {
	looks, answers := make(chan bool, 1), make(chan bool)
	socket := fakeBGPD(t, func(connection net.Conn, command string) bool {
		text := ""
		if command != "enable" {
			select {
			case looks <- true:
				<-answers
			default:
			}
			text = `{"advertisedRoutes":{"10.0.0.1/32":{}}}`
		}
		_, err := connection.Write([]byte(text + "\x00\x00\x00\x00"))
		return err == nil
	})
	vty, err := NewVty(fakeSettings(socket))
	if err != nil {
		t.Fatal(err)
	}
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
	hasty, end := context.WithCancel(t.Context())
	hastyEnded, patientEnded := make(chan error), make(chan error)
	go func() { hastyEnded <- vty.WaitAdvertised(hasty, fakeRail, prefixes) }()
	testlab.Eventually(t, "first look", func() bool { return len(looks) == 1 })
	go func() { patientEnded <- vty.WaitAdvertised(t.Context(), fakeRail, prefixes) }()
	end()
	if err := <-hastyEnded; !errors.Is(err, ErrNotAdvertised) {
		t.Errorf("cancelled wait: %v", err)
	}
	close(answers)
	if err := <-patientEnded; err != nil {
		t.Errorf("other wait: %v", err)
	}
}
