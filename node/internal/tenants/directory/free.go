package directory

import (
	"context"
	"errors"
	"fmt"

	"railwright/node/internal/tenants"
)

// Sweep frees the machines whose RailNodes are off and returns how many there were.
func Sweep(ctx context.Context, store tenants.Store) (freed int, err error) {
	return free(ctx, store, func(spec tenants.NodeSpec, object tenants.Object) bool { return spec.IsOff(object) })
}

// Forget frees the machines of a node. They must be off, and stay off until their state folder is removed or they find out. It returns how
// many there were.
func Forget(ctx context.Context, store tenants.Store, node string) (freed int, err error) {
	return free(ctx, store, func(spec tenants.NodeSpec, _ tenants.Object) bool { return spec.Node == node })
}

func free(ctx context.Context, store tenants.Store, concerned func(tenants.NodeSpec, tenants.Object) bool) (freed int, err error) {
	list, err := store.List(ctx, tenants.KindNode, "")
	if err != nil {
		return 0, err
	}
	for _, object := range list.Objects {
		spec, err := tenants.Decode[tenants.NodeSpec](object)
		if err != nil || !concerned(spec, object) {
			continue
		}
		if err := Free(ctx, store, object); err != nil {
			return freed, err
		}
		freed++
	}
	return freed, nil
}

// Free deletes what a machine that is off has published: first its members, then its claims, then its RailNode.
func Free(ctx context.Context, store tenants.Store, machine tenants.Object) error {
	spec, err := tenants.Decode[tenants.NodeSpec](machine)
	if err != nil {
		return err
	}
	list, err := store.List(ctx, tenants.KindClaim, "")
	if err != nil {
		return err
	}
	var held []tenants.Object
	spaces := map[string]bool{}
	for _, object := range list.Objects {
		claim, err := tenants.Decode[tenants.ClaimSpec](object)
		if err == nil && claim.Node == spec.Node && claim.Instance == spec.Instance {
			held = append(held, object)
			spaces[claim.Tenant] = true
		}
	}
	for space := range spaces {
		object := tenants.Object{Kind: tenants.KindMembers, Space: space, Name: machine.Name}
		if err := remove(ctx, store, object, func(tenants.Object) bool { return true }); err != nil {
			return err
		}
	}
	for _, object := range append(held, machine) {
		if err := remove(ctx, store, object, func(now tenants.Object) bool { return now.UID == object.UID }); err != nil {
			return err
		}
	}
	return nil
}

// maxTries limits the attempts to write an object that another client changes.
const maxTries = 5

// remove deletes an object whatever its version, if what has its name is ours. Without a UID the object is unknown.
func remove(ctx context.Context, store tenants.Store, object tenants.Object, ours func(tenants.Object) bool) error {
	for range maxTries {
		err := tenants.ErrConflict
		if object.UID != "" {
			err = store.Delete(ctx, object)
		}
		if errors.Is(err, tenants.ErrConflict) {
			object, err = store.Get(ctx, object.Kind, object.Space, object.Name)
			if err == nil && ours(object) {
				continue
			}
		}
		if errors.Is(err, tenants.ErrGone) {
			return nil
		}
		return err
	}
	return fmt.Errorf("%s %s changes too fast", object.Kind, object.Name)
}

// replace makes an object have a spec, whatever was there. Without a UID the object is unknown. fresh is false if it had the
// spec already: its version may then be old.
func replace(ctx context.Context, store tenants.Store, object tenants.Object, spec any) (written tenants.Object, fresh bool, err error) {
	for range maxTries {
		write := store.Update
		if object.UID == "" {
			write = store.Create
		}
		object.Spec = tenants.Merge(object.Spec, spec)
		written, err := write(ctx, object)
		if !errors.Is(err, tenants.ErrExists) && !errors.Is(err, tenants.ErrConflict) && !errors.Is(err, tenants.ErrGone) {
			return written, object.UID == "" || written.Version != object.Version, err
		}
		found, err := store.Get(ctx, object.Kind, object.Space, object.Name)
		switch {
		case err == nil:
			object = found
		case errors.Is(err, tenants.ErrGone):
			object = tenants.Object{Kind: object.Kind, Space: object.Space, Name: object.Name}
		default:
			return object, false, err
		}
	}
	return object, false, fmt.Errorf("%s %s changes too fast", object.Kind, object.Name)
}
