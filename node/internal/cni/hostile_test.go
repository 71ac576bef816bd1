package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"google.golang.org/protobuf/proto"

	"railwright/node/internal/attachment"
	"railwright/node/internal/cni/cnitest"
)

const hostileCalls = 10_000

// checkInput prepares an ADD and parses the input of the other commands. Each must end in a CNI error or a valid
// request. The library parses the configuration before.
func checkInput(t *testing.T, configuration []byte, arguments string) (accepted bool) {
	t.Helper()
	ready, err := plugins["railwright-cni"].prepare(&skel.CmdArgs{
		ContainerID: "c1", Netns: "/run/netns/p", IfName: "net1", Args: arguments, StdinData: configuration,
	})
	wantCNIError(t, err)
	if found, err := readFields(configuration); err == nil {
		_, err = found.settings()
		wantCNIError(t, err)
		_, err = found.validAttachments("rail1")
		wantCNIError(t, err)
	} else {
		wantCNIError(t, err)
	}
	if err != nil {
		return false
	}
	request := ready.request
	if _, err := proto.Marshal(request); err != nil {
		t.Errorf("marshal request: %v", err)
	}
	if _, err := attachment.ParseMAC(request.GetMac()); err != nil {
		t.Error(err)
	}
	for _, text := range slices.Concat(request.GetAddresses(), request.GetGateways()) {
		if _, err := netip.ParseAddr(text); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{request.GetPod().GetNamespace(), request.GetPod().GetName()} {
		if name == "" || strings.ContainsAny(name, " \t\n;$`'\"\\/,=|&<>(){}") {
			t.Errorf("pod %v", request.GetPod())
		}
	}
	var printed bytes.Buffer
	if err := ready.printResult(&printed); err != nil {
		t.Error(err)
	}
	if _, err := version.NewResult(ready.settings.Version, printed.Bytes()); err != nil {
		t.Errorf("next plugin cannot parse the result: %v\n%s", err, printed.String())
	}
	return true
}

func wantCNIError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var cniError *types.Error
	if !errors.As(err, &cniError) || cniError.Code == 0 || cniError.Msg == "" {
		t.Errorf("%T %v should be a CNI error", err, err)
		return
	}
	if len(cniError.Msg)+len(cniError.Details) > 8<<10 {
		t.Errorf("error has %d bytes", len(cniError.Msg)+len(cniError.Details))
	}
	if _, err := json.Marshal(cniError); err != nil {
		t.Error(err)
	}
}

// pieces are fragments of hostile or broken input.
var pieces = []string{
	"null", "{}", "[]", "[null]", `""`, "-1", "1e309", "18446744073709551616", "0.1", "true", `"\u0000"`, `"\ud800"`, "$(reboot)",
	"`id`", "; rm -rf /", "' or ''='", "\n", "\x00", "\xff\xfe", "../../etc/passwd", "10.0.0.0/8", "0.0.0.0/0", "::ffff:10.0.0.1/120",
	"fe80::1%eth0", "127.0.0.1/8", "ff:ff:ff:ff:ff:ff", "K8S_POD_NAMESPACE=x;", ";;", "=", `"interface":99`, `"cniVersion":"0.2.0"`,
	`"CNIVersion":"1.1.0",`, `"sandbox":""`, "actions=output:1", "%s%n", strings.Repeat("A", 5000), strings.Repeat("[", 12000),
}

// mangle changes a text a little, so that it stays close to valid input and reaches later checks.
func mangle(random *rand.Rand, text string) string {
	for range 1 + random.IntN(3) {
		at := random.IntN(len(text) + 1)
		end := min(len(text), at+random.IntN(12))
		switch random.IntN(5) {
		case 0: // replace a byte
			if at < len(text) {
				text = text[:at] + string(byte(random.UintN(256))) + text[at+1:]
			}
		case 1: // delete
			text = text[:at] + text[end:]
		case 2: // repeat
			text = text[:end] + text[at:]
		case 3: // insert
			text = text[:at] + pieces[random.IntN(len(pieces))] + text[end:]
		case 4: // replace a field's value
			if colon := strings.IndexByte(text[at:], ':'); colon >= 0 {
				rest := text[at+colon+1:]
				if stop := strings.IndexAny(rest, ",}]"); stop >= 0 {
					text = text[:at+colon+1] + pieces[random.IntN(len(pieces))] + rest[stop:]
				}
			}
		}
	}
	return text
}

// values are JSON values to put in place of others.
var values = []any{
	nil, map[string]any{}, []any{}, []any{nil}, "", "x", "\x00", "../..", "$(reboot)", "10.0.0.9/33", "fe80::1", -1, 0, 1, 7, 0.5, 1e300, true,
	strings.Repeat("A", 5000), "0.2.0", "1.1.0", "/run/netns/other",
}

// misplace changes the shape of a JSON value somewhere inside: valid JSON gets further than mangled text.
func misplace(random *rand.Rand, value any) any {
	if random.IntN(6) == 0 {
		return values[random.IntN(len(values))]
	}
	switch whole := value.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(whole))
		if len(names) == 0 {
			return whole
		}
		name := names[random.IntN(len(names))]
		whole[name] = misplace(random, whole[name])
		if random.IntN(12) == 0 {
			delete(whole, name)
		}
		return whole
	case []any:
		if len(whole) == 0 {
			return whole
		}
		at := random.IntN(len(whole))
		whole[at] = misplace(random, whole[at])
		if random.IntN(6) == 0 {
			whole = append(whole, whole[at])
		}
		return whole
	}
	return values[random.IntN(len(values))]
}

// harm changes a JSON text by mangle or misplace.
func harm(random *rand.Rand, text string) string {
	if random.IntN(3) == 0 {
		return mangle(random, text)
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic(err)
	}
	encoded, err := json.Marshal(misplace(random, value))
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

func seedConfig(t testing.TB, cniVersion string) string {
	text, err := json.Marshal(map[string]any{
		"cniVersion": cniVersion, "name": "rail1", "type": "railwright-cni", "socket": "/run/x.sock", "stateDir": "/var/lib/x",
		"timeoutSeconds": 5, "connectTimeoutSeconds": 0.5, "maxRate": "25Gb/s", "mtu": 1400, "deviceID": "0000:08:00.2",
		"routes": []any{map[string]any{"dst": "10.0.0.0/8"}}, "prevResult": result(cniVersion, "/run/netns/p"),
		"cni.dev/valid-attachments": []any{map[string]any{"containerID": "c1", "ifname": "net1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func testHostile(t *testing.T, make func(random *rand.Rand) (configuration, arguments string)) {
	const seed = 20261122
	random := rand.New(rand.NewPCG(seed, 1))
	accepted := 0
	for number := range hostileCalls {
		configuration, arguments := make(random)
		if checkInput(t, []byte(configuration), arguments) {
			accepted++
		}
		if t.Failed() {
			t.Fatalf("call %d of seed %d:\n%q\n%q", number, seed, configuration, arguments)
		}
	}
	t.Logf("%d of %d accepted", accepted, hostileCalls)
	if accepted == 0 || accepted == hostileCalls {
		t.Error("input must include both accepted and refused cases")
	}
}

func TestHostileConfigurations(t *testing.T) {
	seeds := []string{seedConfig(t, "0.4.0"), seedConfig(t, "1.1.0")}
	testHostile(t, func(random *rand.Rand) (string, string) {
		return harm(random, seeds[random.IntN(len(seeds))]), pod1Args
	})
}

func TestHostilePreviousResults(t *testing.T) {
	var seeds [][2]string
	for _, cniVersion := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		encoded, _ := json.Marshal(result(cniVersion, "/run/netns/p"))
		seeds = append(seeds, [2]string{cniVersion, string(encoded)})
	}
	testHostile(t, func(random *rand.Rand) (string, string) {
		seed := seeds[random.IntN(len(seeds))]
		return `{"cniVersion":"` + seed[0] + `","name":"rail1","prevResult":` + harm(random, seed[1]) + "}", pod1Args
	})
}

func TestHostileArguments(t *testing.T) {
	configuration := seedConfig(t, "1.0.0")
	testHostile(t, func(random *rand.Rand) (string, string) { return configuration, mangle(random, pod1Args) })
}

// TestHostileCallsEndInACNIError runs whole processes, which includes the library, the environment and the exit status.
func TestHostileCallsEndInACNIError(t *testing.T) {
	daemon := cnitest.Start(t)
	random := rand.New(rand.NewPCG(7, 7))
	program := pluginPath(t, "railwright-cni")
	for range 150 {
		fields := map[string]any{"prevResult": result("1.0.0", "/run/netns/p")}
		call := cnitest.Call{
			Program: program, Command: []string{"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"}[random.IntN(6)],
			ContainerID: mangleName(random, "c1"), Interface: mangleName(random, "net1"), Netns: mangleName(random, "/run/netns/p"),
			Args: strings.ReplaceAll(mangle(random, pod1Args), "\x00", ""), Config: harm(random, config(daemon, "1.0.0", fields)),
		}
		call.Do(t)
	}
}

func mangleName(random *rand.Rand, name string) string {
	if random.IntN(3) > 0 {
		return name
	}
	return strings.ReplaceAll(mangle(random, name), "\x00", "")
}

func FuzzAdd(f *testing.F) {
	f.Add([]byte(seedConfig(f, "0.4.0")), pod1Args)
	f.Add([]byte(seedConfig(f, "1.1.0")), pod1Args)
	f.Fuzz(func(t *testing.T, configuration []byte, arguments string) { checkInput(t, configuration, arguments) })
}
