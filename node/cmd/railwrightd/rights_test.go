package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// deployedCapabilities returns the capabilities that the DaemonSet gives to the daemon.
func deployedCapabilities(t *testing.T) []string {
	t.Helper()
	var manifest struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						SecurityContext struct {
							Capabilities struct{ Add, Drop []string }
						}
					}
				}
			}
		}
	}
	content, err := os.ReadFile(deployFolder + "daemonset.yaml")
	if err == nil {
		err = yaml.Unmarshal(content, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	capabilities := manifest.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
	if !slices.Equal(capabilities.Drop, []string{"ALL"}) || len(capabilities.Add) == 0 {
		t.Fatalf("DaemonSet has capabilities %+v", capabilities)
	}
	return capabilities.Add
}

// withCapabilities runs a command with these capabilities only, without a way to get more.
func withCapabilities(capabilities []string, arguments ...string) []string {
	set := "-all"
	for _, capability := range capabilities {
		set += ",+" + strings.ToLower(capability)
	}
	return append([]string{"setpriv", "--bounding-set=" + set, "--inh-caps=-all", "--no-new-privs"}, arguments...)
}

// TestDeployedCapabilitiesAreNecessaryAndSufficient gives FRR's socket to another user, as an installed FRR does.
func TestDeployedCapabilitiesAreNecessaryAndSufficient(t *testing.T) {
	lab := newLab(t, railnode.NewFRR)
	const frrUser = 65534
	lab.giveSocket(t, frrUser)
	all := deployedCapabilities(t)
	check := []string{railnode.Daemon(t), "--check-config", "--config", lab.Config()}
	if stdout, _, code := outputs(t, lab.Host.Command(withCapabilities(all, check...)...)); code != exitOK || strings.Contains(stdout, "problem") {
		t.Errorf("with the deployed capabilities: status %d, %q", code, stdout)
	}
	for _, missing := range all {
		t.Run("without "+missing, func(t *testing.T) {
			rest := slices.DeleteFunc(slices.Clone(all), func(capability string) bool { return capability == missing })
			stdout, _, code := outputs(t, lab.Host.Command(withCapabilities(rest, check...)...))
			t.Log(stdout)
			if code != exitBad || !strings.Contains(stdout, "capability "+missing+" is missing") || strings.Count(stdout, "problem: ") != 1 {
				t.Errorf("--check-config: status %d", code)
			}
			lab.serveWith(t, rest, func() {
				answer := lab.awaitReady(t, missing, "not checked yet")
				t.Log(answer)
				if !strings.Contains(answer, "503") || !strings.Contains(answer, "capability "+missing+" is missing") {
					t.Error("daemon is ready")
				}
				stdout, _, code := lab.call(t, "status", "--socket", lab.Socket())
				if code != exitBad || !strings.Contains(stdout, "problem: capability "+missing) {
					t.Errorf("status: %d %q", code, stdout)
				}
			})
		})
	}
	t.Run("with all", func(t *testing.T) {
		lab.serveWith(t, all, func() {
			if answer := lab.awaitReady(t, "\r\nok\n"); !strings.Contains(answer, "200 OK") {
				t.Error(answer)
			}
			pod := lab.newPod(2, "tenant-a")
			lab.mustAdd(pod)
			testlab.Eventually(t, "routes at the leaf", func() bool { return lab.leafHas(pod) })
			lab.mustWork(pod)
			lab.FRR.Kill(t, "bgpd")
			if answer := lab.awaitReady(t, "bgpd is not ready"); !strings.Contains(answer, "503") {
				t.Error("daemon is ready without bgpd")
			}
		})
	})
	if err := os.Remove(lab.FRR.Socket("bgpd")); err != nil {
		t.Fatal(err)
	}
	stdout, _, code := outputs(t, lab.Host.Command(check...))
	if code != exitFailure || !strings.Contains(stdout, "cannot check access to "+lab.FRR.Socket("bgpd")) {
		t.Errorf("--check-config with no bgpd: status %d, %q", code, stdout)
	}
}

// giveSocket makes bgpd's socket accessible to a single user.
func (nl *nodeLab) giveSocket(t *testing.T, user int) {
	t.Helper()
	socket := nl.FRR.Socket("bgpd")
	if err := os.Chown(socket, user, user); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o770); err != nil {
		t.Fatal(err)
	}
}

// serveWith runs the daemon with these capabilities only while do runs.
func (nl *nodeLab) serveWith(t *testing.T, capabilities []string, do func()) {
	t.Helper()
	command := nl.Host.Command(withCapabilities(capabilities, railnode.Daemon(t), "--config", nl.Config())...)
	log, err := os.Create(nl.Path(fmt.Sprintf("with-%d.log", len(capabilities))))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := testlab.Start(command); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if output, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s", output)
		}
		_ = log.Close()
	}()
	do()
}

// awaitReady waits until /readyz contains want and none of more, and returns its text.
func (nl *nodeLab) awaitReady(t *testing.T, want string, more ...string) string {
	t.Helper()
	var answer string
	testlab.Eventually(t, "/readyz contains "+want, func() bool {
		response, err := nl.Host.Try("bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/9477; printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3; cat <&3`)
		answer = response
		return err == nil && strings.Contains(response, want) &&
			!slices.ContainsFunc(more, func(other string) bool { return strings.Contains(response, other) })
	})
	return answer
}
