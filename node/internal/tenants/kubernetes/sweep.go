package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/directory"
)

const (
	// outOfService is the taint by which people and programs declare that the machine of a Node is off.
	outOfService = "node.kubernetes.io/out-of-service"
	// countEvery is how often the claims of machines without a Node are counted.
	countEvery = time.Minute
)

// sweeper frees what machines hold that are off.
type sweeper struct {
	store   *Store
	log     *slog.Logger
	report  func(held map[string]int)
	counted time.Time
}

// Sweep frees what machines hold that are off, until ctx ends: those whose Node has the out-of-service taint, those whose
// RailNode has the annotation, and those that hold nothing and whose Node is gone. One process does that, because a node's
// daemon may delete nothing of another node. report gets the number of addresses that machines hold whose Node is gone, by
// the name of the RailNode, and nil if it is unknown.
func (s *Store) Sweep(ctx context.Context, log *slog.Logger, report func(held map[string]int)) {
	sweeping := &sweeper{store: s, log: log, report: report}
	places := [2]place{{prefix: core, resource: "nodes"}, at(tenants.KindNode, "", "")}
	s.api.mirror(ctx, places, countEvery, func(nodes, machines map[string]item) {
		if err := sweeping.sweep(ctx, nodes, machines); err != nil && ctx.Err() == nil {
			sweeping.counted = time.Time{}
			report(nil)
			log.Warn("cannot free what machines hold that are off", "error", err)
		}
	}, func(err error) {
		report(nil)
		log.Warn("cannot look for machines that are off", "error", err)
	})
}

func (s *sweeper) sweep(ctx context.Context, nodes, machines map[string]item) error {
	gone := map[string]tenants.Object{}
	for name, got := range machines {
		machine := fromAPI(tenants.KindNode, "", got)
		spec, err := tenants.Decode[tenants.NodeSpec](machine)
		if err != nil {
			continue // it concerns itself alone
		}
		node, there := nodes[spec.Node]
		there = there && node.Metadata.UID == spec.NodeUID
		switch {
		case spec.IsOff(machine):
		case there && isOutOfService(node):
			// Written down first: the Node may be deleted before all is freed.
			if err := s.store.declareOff(ctx, name, spec.NodeUID); err != nil {
				return err
			}
		case !there:
			gone[name] = machine
			continue
		default:
			continue
		}
		s.log.Info("the machine is off; freeing its addresses", "railnode", name)
		if err := directory.Free(ctx, s.store, machine); err != nil {
			return err
		}
	}
	return s.count(ctx, gone)
}

func isOutOfService(node item) bool {
	var spec struct {
		Taints []struct{ Key string }
	}
	return decode(node.Spec, &spec) == nil &&
		slices.ContainsFunc(spec.Taints, func(taint struct{ Key string }) bool { return taint.Key == outOfService })
}

func (s *Store) declareOff(ctx context.Context, name, nodeUID string) error {
	_, err := s.api.patch(ctx, at(tenants.KindNode, "", name), types.MergePatchType, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{OffAnnotation: nodeUID}},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// count reports what machines without a Node hold, and frees those that hold nothing.
func (s *sweeper) count(ctx context.Context, gone map[string]tenants.Object) error {
	if len(gone) > 0 && time.Since(s.counted) < countEvery {
		return nil
	}
	s.counted = time.Now()
	held := map[string]int{}
	if len(gone) > 0 {
		list, err := s.store.List(ctx, tenants.KindClaim, "")
		if err != nil {
			return err
		}
		for _, object := range list.Objects {
			claim, err := tenants.Decode[tenants.ClaimSpec](object)
			if name := tenants.NodeName(claim.Node, claim.Instance); err == nil && gone[name].Name == name {
				held[name]++
			}
		}
	}
	s.report(held)
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if held[name] > 0 {
			continue
		}
		spec, err := tenants.Decode[tenants.NodeSpec](gone[name])
		if err != nil {
			return err
		}
		var node item
		err = do(ctx, s.store.api.request("GET", place{prefix: core, resource: "nodes", name: spec.Node}), &node)
		switch {
		case err == nil && node.Metadata.UID == spec.NodeUID:
			continue // it was younger than the list
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("read Node %s: %w", spec.Node, err)
		}
		s.log.Info("the machine holds nothing and its Node is gone; forgetting it", "railnode", name)
		if err := s.store.Delete(ctx, gone[name]); err != nil {
			s.log.Debug("it changed meanwhile", "railnode", name, "error", err)
		}
	}
	return nil
}
