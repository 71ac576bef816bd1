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

// falseBGPD answers on a socket as it was told to: some process that took bgpd's place, or bgpd out of its mind.
func falseBGPD(t *testing.T, answer func(connection net.Conn, command string) bool) string {
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

// says the text to every command but `enable`.
func says(text string) func(net.Conn, string) bool {
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

func falseSettings(socket string) Settings {
	return Settings{Socket: socket, Rails: []RailSettings{{
		Name: "rail0", Bridge: "br-rail0", Table: 7700, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
	}}}
}

var falseRail = plan.Rail{Name: "rail0", Bridge: "br-rail0", Table: 7700}

// noAnswer within the caller's time.
const noAnswer = "no answer"

// hostileCase is an answer to every command, and what the error of Session is to match.
type hostileCase struct {
	name   string
	answer func(net.Conn, string) bool
	want   string
}

func hostileCases() []hostileCase {
	end := "\x00\x00\x00\x00"
	endless := strings.Repeat("a", 1<<20)
	return []hostileCase{
		{"nothing", func(net.Conn, string) bool { return true }, noAnswer},
		{"closes", func(net.Conn, string) bool { return false }, "EOF"},
		{"half an answer", says(`{"br-rail0":{`), noAnswer},
		{"endless", func(connection net.Conn, _ string) bool {
			for {
				if _, err := connection.Write([]byte(endless)); err != nil {
					return false
				}
			}
		}, "above 16 MiB|no answer within 2s"},
		{"drop by drop", func(connection net.Conn, _ string) bool {
			for {
				if _, err := connection.Write([]byte("a")); err != nil {
					return false
				}
				time.Sleep(50 * time.Millisecond)
			}
		}, "no answer within 2s"},
		{"NUL within", says("{\x00}" + end), "not of FRR's kind"},
		{"more behind the end", says("{}" + end + "{}"), "not of FRR's kind"},
		{"no JSON", says("<html>\n\x1b[31m" + end), "is not JSON"},
		{"other JSON", says(`{"br-rail0":[1]}` + end), "array where"},
		{"a number for a word", says(`{"br-rail0":{"bgpState":7}}` + end), "number where"},
		{"deep JSON", says(strings.Repeat(`{"a":`, 200000) + end), "is not JSON"},
		{"refuses", says("% Unknown command\n\x00\x00\x00\x02"), "refuses"},
		{"not configured", says("% BGP instance not found\n" + end), "BGP instance not found"},
		{"another's neighbor", says(`{"eth9":{"bgpState":"Established"}}` + end), "no neighbor br-rail0"},
	}
}

func TestHostileAnswersAreErrorsInBoundedTime(t *testing.T) {
	t.Parallel()
	for _, test := range hostileCases() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

func (h hostileCase) run(t *testing.T) {
	vty, err := NewVty(falseSettings(falseBGPD(t, h.answer)))
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Minute // the exchange's own limits are those that count
	if h.want == noAnswer {
		limit = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err = vty.Session(ctx, falseRail)
	if err == nil || !regexp.MustCompile(h.want).MatchString(err.Error()) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x1b\n\x00") {
		t.Errorf("session: %v", err)
	}
	if limit == time.Minute && ctx.Err() != nil {
		t.Error("it was the caller's time that ran out")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = vty.WaitAdvertised(ctx, falseRail, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")})
	if !errors.Is(err, ErrNotAdvertised) || len(err.Error()) > 600 {
		t.Errorf("wait: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := vty.Sync(ctx, falseRail, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}); err == nil {
		t.Error("Sync found nothing wrong")
	}
}

func TestWhatBgpdSaysIsShownEscapedAndShort(t *testing.T) {
	state := strings.Repeat("x", 5000) + `\u001b[31m\n`
	socket := falseBGPD(t, says(`{"br-rail0":{"bgpState":"`+state+`","lastNotificationReason":"\u0007`+state+`"}}`+"\x00\x00\x00\x00"))
	vty, err := NewVty(falseSettings(socket))
	if err != nil {
		t.Fatal(err)
	}
	session, err := vty.Session(t.Context(), falseRail)
	if err != nil || session.Established || len(session.State) > 400 || strings.ContainsAny(session.State, "\x1b\n\x07") {
		t.Errorf("%q, %v", session.State, err)
	}
}

func TestVtyNeverMakesAnInstance(t *testing.T) {
	for name, running := range map[string]string{
		"no instance":   "frr version 8.4.4\n!\nhostname x\n",
		"one of a VRF":  "router bgp 65101 vrf blue\n address-family ipv4 unicast\n  network 10.0.0.1/32 route-map railwright-rail0\n",
		"one of a view": "router bgp 65101 view blue\n",
	} {
		t.Run(name, func(t *testing.T) {
			var configured atomic.Bool
			socket := falseBGPD(t, func(connection net.Conn, command string) bool {
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
			vty, err := NewVty(falseSettings(socket))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = vty.Sync(t.Context(), falseRail, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")})
			if !errors.Is(err, ErrNotReady) || configured.Load() {
				t.Errorf("configured %v, %v", configured.Load(), err)
			}
		})
	}
}

// A wait whose time is over does not end those of others who shared its look.
func TestOneWaitersEndIsNotTheOthers(t *testing.T) {
	looks, answers := make(chan bool, 1), make(chan bool)
	socket := falseBGPD(t, func(connection net.Conn, command string) bool {
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
	vty, err := NewVty(falseSettings(socket))
	if err != nil {
		t.Fatal(err)
	}
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
	hasty, end := context.WithCancel(t.Context())
	hastyEnded, patientEnded := make(chan error), make(chan error)
	go func() { hastyEnded <- vty.WaitAdvertised(hasty, falseRail, prefixes) }()
	testlab.Eventually(t, "first look", func() bool { return len(looks) == 1 })
	go func() { patientEnded <- vty.WaitAdvertised(t.Context(), falseRail, prefixes) }()
	end()
	if err := <-hastyEnded; !errors.Is(err, ErrNotAdvertised) {
		t.Errorf("the hasty one: %v", err)
	}
	close(answers)
	if err := <-patientEnded; err != nil {
		t.Errorf("the patient one: %v", err)
	}
}
