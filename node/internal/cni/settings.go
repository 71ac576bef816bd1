package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"railwright/node/internal/attachment"
	"railwright/node/internal/tombstone"
)

// Defaults of the configuration.
const (
	DefaultSocket         = "/run/railwright/railwrightd.sock"
	DefaultConnectTimeout = time.Second
	DefaultTimeout        = 20 * time.Second
)

const (
	maxConfigBytes = 4 << 20
	maxRoutes      = 64
	longestTimeout = 300 * time.Second
	minMTU         = 1280
	maxMTU         = 65535
)

// Settings are the fields that every command needs.
type Settings struct {
	Network string
	// Version is the CNI version of the result.
	Version string
	Socket  string
	// Tombstones is the folder for DELs that the daemon did not receive.
	Tombstones     string
	ConnectTimeout time.Duration
	// Timeout is the time for a call of the daemon.
	Timeout time.Duration
}

// PodSettings are the fields that only ADD and CHECK need.
type PodSettings struct {
	// MaxRate is the limit in bit/s. 0 means no limit.
	MaxRate uint64
	// MTU is set on the pod's interface and its host end. 0 leaves them unchanged.
	MTU int
	// Routes are added in the pod through the gateway of their family.
	Routes []netip.Prefix
	// DeviceID is the VF's PCI address, if it has one.
	DeviceID string
}

// fields are the configuration's fields by exact name. Unknown fields are ignored, because runtimes add their own to
// every plugin.
type fields map[string]json.RawMessage

func readFields(config []byte) (fields, error) {
	if len(config) > maxConfigBytes {
		return nil, failure(types.ErrDecodingFailure, "", "configuration must have at most %d bytes, got %d",
			maxConfigBytes, len(config))
	}
	var found fields
	if err := json.Unmarshal(config, &found); err != nil {
		return nil, failure(types.ErrDecodingFailure, "", "configuration must be a JSON object: %v", err)
	}
	return found, nil
}

// decode decodes a field, unless it is missing or null. Its error contains the field, the value and the expectation.
func (f fields) decode(name string, target any, expected string) error {
	raw, there := f[name]
	if !there || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil {
		return badField(name, raw, expected)
	}
	return nil
}

func badField(name string, value any, expected string) error {
	return failure(types.ErrInvalidNetworkConfig, "fix it in the NetworkAttachmentDefinition or the conflist",
		"%s must be %s, got %.80s", name, expected, value)
}

func (f fields) settings() (Settings, error) {
	settings := Settings{Socket: DefaultSocket, Tombstones: tombstone.DefaultFolder}
	stateDir, connect, timeout := "", DefaultConnectTimeout.Seconds(), DefaultTimeout.Seconds()
	const path, seconds = "an absolute path", "seconds above 0 and at most 300"
	err := errors.Join(
		f.decode("name", &settings.Network, "a name"),
		f.decode("cniVersion", &settings.Version, "a version"),
		f.decode("socket", &settings.Socket, path),
		f.decode("stateDir", &stateDir, path),
		f.decode("connectTimeoutSeconds", &connect, seconds),
		f.decode("timeoutSeconds", &timeout, seconds),
	)
	if err != nil {
		return Settings{}, first(err)
	}
	if !attachment.IsPath(settings.Socket) || len(settings.Socket) > attachment.LongestSocket {
		return Settings{}, badField("socket", strconv.Quote(settings.Socket), path)
	}
	if stateDir != "" {
		if !attachment.IsPath(stateDir) {
			return Settings{}, badField("stateDir", strconv.Quote(stateDir), path)
		}
		settings.Tombstones = filepath.Join(stateDir, filepath.Base(tombstone.DefaultFolder))
	}
	for _, field := range []struct {
		name  string
		value float64
	}{{"connectTimeoutSeconds", connect}, {"timeoutSeconds", timeout}} {
		if !(field.value > 0 && field.value <= longestTimeout.Seconds()) {
			return Settings{}, badField(field.name, fmt.Sprint(field.value), seconds)
		}
	}
	settings.ConnectTimeout = time.Duration(connect * float64(time.Second))
	settings.Timeout = time.Duration(timeout * float64(time.Second))
	return settings, nil
}

func (f fields) podSettings() (PodSettings, error) {
	var wishes PodSettings
	var rate *string
	var routes []struct {
		Destination *netip.Prefix `json:"dst"`
	}
	err := errors.Join(
		f.decode("maxRate", &rate, rateExample),
		f.decode("mtu", &wishes.MTU, "a number of bytes"),
		f.decode("routes", &routes, `a list like [{"dst": "10.0.0.0/8"}]`),
		f.decode("deviceID", &wishes.DeviceID, "a PCI address like 0000:08:00.2"),
	)
	if err != nil {
		return PodSettings{}, first(err)
	}
	if rate != nil {
		wishes.MaxRate, err = parseRate(*rate)
		if err != nil {
			return PodSettings{}, err
		}
	}
	if wishes.MTU != 0 && (wishes.MTU < minMTU || wishes.MTU > maxMTU) {
		return PodSettings{}, badField("mtu", strconv.Itoa(wishes.MTU), fmt.Sprintf("%d to %d bytes", minMTU, maxMTU))
	}
	switch {
	case wishes.DeviceID == "", attachment.IsPCI(wishes.DeviceID):
	case isAuxiliary(wishes.DeviceID):
		wishes.DeviceID = "" // the API accepts only PCI addresses
	default:
		return PodSettings{}, badField("deviceID", strconv.Quote(wishes.DeviceID), "a PCI address like 0000:08:00.2")
	}
	if len(routes) > maxRoutes {
		return PodSettings{}, badField("routes", strconv.Itoa(len(routes)), fmt.Sprintf("a list of at most %d", maxRoutes))
	}
	for _, route := range routes {
		if route.Destination == nil || !route.Destination.IsValid() || route.Destination.Masked() != *route.Destination {
			return PodSettings{}, badField("routes", string(f["routes"]),
				"destinations without host bits, such as 10.0.0.0/8")
		}
		wishes.Routes = append(wishes.Routes, *route.Destination)
	}
	return wishes, nil
}

// validAttachments returns the list of a GC. A missing list is an error, because an empty list means that nothing is
// valid.
func (f fields) validAttachments(network string) ([]attachment.Key, error) {
	const name, hint = "cni.dev/valid-attachments", "the container runtime provides this list; check its log and version"
	if _, there := f[name]; !there {
		return nil, failure(types.ErrInvalidNetworkConfig, hint, "GC needs %s", name)
	}
	var listed []types.GCAttachment
	raw := f[name]
	if err := json.Unmarshal(raw, &listed); err != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, hint,
			"%s must be a list of containerID and ifname, got %.80s", name, raw)
	}
	keys := make([]attachment.Key, 0, len(listed))
	for _, valid := range listed {
		key := attachment.Key{Network: network, ContainerID: valid.ContainerID, Interface: valid.IfName}
		if err := key.Check(); err != nil {
			return nil, failure(types.ErrInvalidNetworkConfig, hint, "%s: %v", name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// isAuxiliary reports whether the name is a scalable function, such as mlx5_core.sf.4.
func isAuxiliary(name string) bool {
	parts := strings.Split(name, ".")
	return len(name) <= 64 && len(parts) == 3 && !slices.Contains(parts, "") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == ""
}

const rateExample = `a rate like "25Gb/s"`

// parseRate returns bit/s.
func parseRate(text string) (uint64, error) {
	for unit, factor := range map[string]float64{"kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9} {
		number, ok := strings.CutSuffix(text, unit)
		if !ok || len(number) > 16 || strings.Trim(number, "0123456789.") != "" {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if rate := math.Round(value * factor); err == nil && rate >= 1e6 && rate <= 4294e9 {
			return uint64(rate), nil
		}
		return 0, badField("maxRate", strconv.Quote(text), "1 Mb/s to 4294 Gb/s")
	}
	return 0, badField("maxRate", strconv.Quote(text), rateExample)
}

// first returns the first of joined errors, because a plugin can return only one CNI error.
func first(joined error) error {
	if several, ok := joined.(interface{ Unwrap() []error }); ok {
		return several.Unwrap()[0]
	}
	return joined
}
