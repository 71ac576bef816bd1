package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
)

const askBound = 20 * time.Second

// ask calls the running daemon.
func ask(ctx context.Context, socket, method string, request, reply proto.Message) error {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("create gRPC client for %s: %w", socket, err)
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	err = connection.Invoke(ctx, method, request, reply)
	if grpcstatus.Code(err) == codes.Unavailable {
		return fmt.Errorf("no railwrightd answers at %s: %s; check that it runs and that you are root", socket,
			grpcstatus.Convert(err).Message())
	}
	return err
}

// list prints the attachments.
func list(ctx context.Context, arguments []string, out io.Writer) (int, error) {
	opts, _, err := parse("list", arguments, 0, "socket", "json")
	if err != nil {
		return 0, err
	}
	reply := &nodev1.ListReply{}
	err = ask(ctx, opts.socket, nodev1.NodeNetwork_List_FullMethodName, &nodev1.ListRequest{}, reply)
	if err != nil {
		return 0, err
	}
	if opts.json {
		return exitOK, printJSON(out, reply)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(table, "NAMESPACE/POD", "INTERFACE", "RAIL", "TENANT", "ADDRESSES", "PORT", "FLOWS", "ADVERTISED")
	for _, attached := range reply.GetAttached() {
		row(table, attached.GetPod().GetNamespace()+"/"+attached.GetPod().GetName(), attached.GetKey().GetInterface(), attached.GetRail(),
			attached.GetTenant(), strings.Join(attached.GetAddresses(), " "), attached.GetHostInterface(),
			fmt.Sprintf("%d of %d", attached.GetFlowsInstalled(), attached.GetFlowsWanted()), yesNo(attached.GetAdvertised()))
	}
	return exitOK, table.Flush()
}

// status prints the state of the rails and of the daemon. It returns 1 if there is a problem.
func status(ctx context.Context, arguments []string, out io.Writer) (int, error) {
	opts, _, err := parse("status", arguments, 0, "socket", "json")
	if err != nil {
		return 0, err
	}
	reply := &nodev1.StatusReply{}
	err = ask(ctx, opts.socket, nodev1.NodeNetwork_Status_FullMethodName, &nodev1.StatusRequest{}, reply)
	if err != nil {
		return 0, err
	}
	code := exitOK
	problems := slices.Concat(reply.GetProblems(), reply.GetNotes())
	for _, rail := range reply.GetRails() {
		for _, problem := range rail.GetProblems() {
			problems = append(problems, rail.GetRail()+": "+problem)
		}
		if !rail.GetSwitchReady() || !rail.GetUplinkUp() || !rail.GetSessionEstablished() {
			code = exitBad
		}
	}
	if len(problems) > 0 {
		code = exitBad
	}
	if opts.json {
		return code, printJSON(out, reply)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(table, "RAIL", "SWITCH READY", "UPLINK UP", "BGP ESTABLISHED")
	for _, rail := range reply.GetRails() {
		row(table, rail.GetRail(), yesNo(rail.GetSwitchReady()), yesNo(rail.GetUplinkUp()), yesNo(rail.GetSessionEstablished()))
	}
	err = table.Flush()
	for _, problem := range problems {
		_, failed := fmt.Fprintln(out, "problem: "+problem)
		err = errors.Join(err, failed)
	}
	return code, err
}

func printJSON(out io.Writer, message proto.Message) error {
	content, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode reply as JSON: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", content)
	return err
}

// row writes a row of a table. A tabwriter returns errors from Flush.
func row(table *tabwriter.Writer, cells ...string) {
	_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
