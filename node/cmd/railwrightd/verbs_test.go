package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// call runs the program in the node's namespace and returns its standard output, standard error and exit status.
func (nl *nodeLab) call(t *testing.T, arguments ...string) (stdout, stderr string, code int) {
	t.Helper()
	return outputs(t, nl.Host.Command(append([]string{railnode.Daemon(t)}, arguments...)...))
}

func outputs(t *testing.T, command *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, wrong strings.Builder
	command.Stdout, command.Stderr = &out, &wrong
	err := command.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return out.String(), wrong.String(), command.ProcessState.ExitCode()
}

// runVerbs runs the verbs, for people and for programs.
func (nl *nodeLab) runVerbs(t *testing.T) {
	socket, file := nl.Socket(), nl.Config()
	for _, test := range []struct {
		arguments []string
		code      int
		stdout    []string
	}{
		{[]string{"list", "--socket", socket}, exitOK, []string{"tenant-a/pod-2", "10.1.0.2 fd00:1::2", "veth2", " yes"}},
		{[]string{"status", "--socket", socket}, exitOK, []string{"rail0  yes           yes        yes"}},
		{[]string{"flows", "--config", file}, exitOK, []string{"IN PORT", "netdev", "veth2"}},
		{[]string{"--check-config", "--config", file}, exitOK, []string{"1 rails, valid"}},
	} {
		stdout, stderr, code := nl.call(t, test.arguments...)
		t.Logf("railwrightd %s\n%s%s", strings.Join(test.arguments, " "), stdout, stderr)
		if code != test.code {
			t.Errorf("%v: status %d", test.arguments, code)
		}
		for _, part := range test.stdout {
			if !strings.Contains(stdout, part) {
				t.Errorf("%v does not print %q", test.arguments, part)
			}
		}
	}
	for verb, field := range map[string]string{"list": "attached", "status": "rails"} {
		stdout, _, _ := nl.call(t, verb, "--json", "--socket", socket)
		var parsed map[string][]map[string]any
		if err := json.Unmarshal([]byte(stdout), &parsed); err != nil || len(parsed[field]) == 0 {
			t.Errorf("%s --json: %v\n%s", verb, err, stdout)
		}
	}
	stdout, _, _ := nl.call(t, "flows", "--json", "--config", file)
	var cached []cachedFlow
	if err := json.Unmarshal([]byte(stdout), &cached); err != nil || len(cached) == 0 || cached[0].Layer == "" {
		t.Errorf("flows --json: %v\n%.300s", err, stdout)
	}
	for path, want := range map[string]string{
		"/metrics": `railwright_step_seconds_count{request="add",step="store"} 2`, "/healthz": "ok", "/readyz": "ok",
	} {
		testlab.Eventually(t, path+" contains "+want, func() bool { return strings.Contains(nl.scrape(t, path), want) })
	}
}

// scrape reads a path of the daemon's address, which only its namespace has.
func (nl *nodeLab) scrape(t testing.TB, path string) string {
	t.Helper()
	output, err := nl.Host.Try("bash", "-c",
		`exec 3<>/dev/tcp/127.0.0.1/9477; printf 'GET `+path+` HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	if err != nil {
		t.Fatalf("%v %s", err, output)
	}
	return output
}

func TestMisuseIsReportedWithTheNextStep(t *testing.T) {
	binary := railnode.Daemon(t)
	wrong := t.TempDir() + "/wrong.yaml"
	if err := os.WriteFile(wrong, []byte("rails: []\ntenats: {kind: local}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		arguments []string
		code      int
		want      string
	}{
		{[]string{"frobnicate"}, exitMisuse, `unknown verb "frobnicate"`},
		{[]string{"--nonsense"}, exitMisuse, "valid options are --"},
		{[]string{"list", "all"}, exitMisuse, "list takes 0 arguments, got 1"},
		{[]string{"forget"}, exitMisuse, "forget takes 1 arguments, got 0"},
		{[]string{"sweep", "gpu-1"}, exitMisuse, "sweep takes 0 arguments, got 1"},
		{[]string{"--check-config", "--config", wrong}, exitMisuse, `did you mean "tenants"`},
		{[]string{"--config", "/nonexistent.yaml"}, exitMisuse, "--config"},
		{[]string{"list", "--socket", "/nonexistent.sock"}, exitFailure, "check that it runs"},
	} {
		_, stderr, code := outputs(t, exec.Command(binary, test.arguments...))
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: status %d, %q", test.arguments, code, stderr)
		}
	}
	if output, _, code := outputs(t, exec.Command(binary, "--help")); code != exitOK || !strings.Contains(output, "railwrightd list") {
		t.Errorf("--help: status %d, %q", code, output)
	}
}
