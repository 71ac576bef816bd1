// Command deviceplugin registers nonexistent devices with kubelet, so that pods that request them can be scheduled:
// `deviceplugin nvidia.com/gpu=g0,g1 nvidia.com/mlnx_sriov_pf1_vf=0000:08:00.2`. Like the SR-IOV network device plugin
// it passes the allocated devices to a container in PCIDEVICE_RESOURCE. It registers again whenever kubelet restarts.
// With RESOURCE=ID,ID@FILE a container also gets the mounts and variables of FILE, a ContainerAllocateResponse in JSON,
// if the file exists.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	registrationTimeout = 5 * time.Second
	// tryAgain is the pause after a failed registration.
	tryAgain = time.Second
)

// plugin is the device plugin of a resource.
type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	ids      []string
	// more is the file with the mounts and variables, or empty.
	more string
}

func (*plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices once, because they never change.
func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	answer := &api.ListAndWatchResponse{}
	for _, id := range p.ids {
		answer.Devices = append(answer.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	name := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(p.resource))
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		one, err := p.readMore()
		if err != nil {
			return nil, err
		}
		one.Envs[name] = strings.Join(container.DevicesIds, ",")
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// readMore returns the mounts and variables of the file. It is read each time, because tests write it later.
func (p *plugin) readMore() (*api.ContainerAllocateResponse, error) {
	found := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	if p.more == "" {
		return found, nil
	}
	content, err := os.ReadFile(p.more)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, found); err != nil {
		return nil, fmt.Errorf("%s: %w", p.more, err)
	}
	return found, nil
}

// serve serves a resource on its socket and registers it. The caller must stop the returned server.
func (p *plugin) serve(ctx context.Context) (*grpc.Server, error) {
	socket := filepath.Join(api.DevicePluginPath, strings.ReplaceAll(p.resource, "/", "_")+".sock")
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	if err := p.register(ctx, filepath.Base(socket)); err != nil {
		server.Stop()
		return nil, fmt.Errorf("register %s: %w", p.resource, err)
	}
	return server, nil
}

func (p *plugin) register(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // the connection is no longer used
	// kubelet's socket exists before kubelet listens on it, and refuses connections until then.
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: p.resource,
	}, grpc.WaitForReady(true))
	return err
}

// run serves all resources, and again each time that kubelet creates its socket.
func run(ctx context.Context, plugins []*plugin) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close() //nolint:errcheck // the program ends
	if err := watcher.Add(api.DevicePluginPath); err != nil {
		return fmt.Errorf("watch %s: %w", api.DevicePluginPath, err)
	}
	var servers []*grpc.Server
	for {
		for _, server := range servers {
			server.Stop()
		}
		servers = nil
		var again <-chan time.Time
		for _, plugin := range plugins {
			server, err := plugin.serve(ctx)
			if err != nil {
				slog.Info("not registered", "cause", err)
				again = time.After(tryAgain)
				break
			}
			slog.Info("registered", "resource", plugin.resource, "devices", len(plugin.ids))
			servers = append(servers, server)
		}
		if !awaitKubelet(ctx, watcher, again) {
			return nil
		}
	}
}

// awaitKubelet waits until kubelet creates its socket again or a retry is due. It returns false when ctx ends.
func awaitKubelet(ctx context.Context, watcher *fsnotify.Watcher, again <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case err := <-watcher.Errors:
			slog.Error("watch", "cause", err)
			return false
		case event := <-watcher.Events:
			if event.Name == api.KubeletSocket && event.Has(fsnotify.Create) {
				return true
			}
		}
	}
}

func main() {
	var plugins []*plugin
	for _, argument := range os.Args[1:] {
		resource, ids, found := strings.Cut(argument, "=")
		ids, more, _ := strings.Cut(ids, "@")
		if !found || ids == "" {
			fmt.Fprintf(os.Stderr, "%q is not RESOURCE=ID,ID\nhint: nvidia.com/gpu=g0,g1\n", argument)
			os.Exit(2)
		}
		plugins = append(plugins, &plugin{resource: resource, ids: strings.Split(ids, ","), more: more})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, plugins); err != nil {
		slog.Error("deviceplugin", "cause", err)
		os.Exit(3)
	}
}
