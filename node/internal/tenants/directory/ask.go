package directory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"railwright/node/internal/tenants"
)

// ask calls the store and records whether it can be asked.
func ask[T any](ctx context.Context, d *Directory, name string, do func(context.Context) (T, error)) (answer T, err error) {
	bounded, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	answer, err = do(bounded)
	switch {
	case err == nil, errors.Is(err, tenants.ErrExists), errors.Is(err, tenants.ErrConflict), errors.Is(err, tenants.ErrGone):
		d.reach(nil)
		return answer, err
	case ctx.Err() == nil:
		d.reach(fmt.Errorf("%s: %w", name, err))
	}
	return answer, fmt.Errorf("%w: %s: %w", tenants.ErrUnreachable, name, err)
}

// reach records that the store answered, or that it could not be asked.
func (d *Directory) reach(fault error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch {
	case fault != nil && d.lost == "":
		d.lostSince = time.Now()
		d.log.Warn("tenant directory is unreachable", "error", fault)
	case fault == nil && d.lost != "":
		d.log.Info("tenant directory is reachable again", "away", time.Since(d.lostSince).Round(time.Millisecond))
	}
	d.lost = ""
	if fault != nil {
		d.lost = fault.Error()
	}
}

// errRestored means that the store's version went back.
var errRestored = fmt.Errorf("%w: it was restored from a backup", tenants.ErrUnreachable)

func restoredText(to string) string {
	return fmt.Sprintf("tenant directory went back to %s, so it was restored from a backup; raise its epoch (`railwrightd epoch`) once it is "+
		"complete", to)
}

// goneBy returns an error if a version is older than one that this node had gone by before.
func (d *Directory) goneBy(version, before uint64) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if version < before && d.settings.without != seeRestore {
		if d.restored == "" {
			d.log.Error("the tenant directory went back", "version", version, "before", before)
		}
		d.restored = restoredText(fmt.Sprintf("version %d from %d", version, before))
		return errRestored
	}
	d.gone = max(d.gone, version)
	return nil
}

// before returns the version that no later answer may be older than.
func (d *Directory) before() uint64 { return look(d, func(*state) uint64 { return d.gone }) }

// get reads a claim, a RailNode or the epoch.
func (d *Directory) get(ctx context.Context, kind tenants.Kind, name string) (tenants.Object, error) {
	return ask(ctx, d, "read "+string(kind), func(ctx context.Context) (tenants.Object, error) {
		return d.store.Get(ctx, kind, "", name)
	})
}

// list lists objects. The list is not older than anything that this node had gone by before the call.
func (d *Directory) list(ctx context.Context, kind tenants.Kind, space string) (tenants.List, error) {
	before := d.before()
	list, err := ask(ctx, d, "list "+string(kind), func(ctx context.Context) (tenants.List, error) {
		return d.store.List(ctx, kind, space)
	})
	if err != nil {
		return list, err
	}
	return list, d.goneBy(list.Version, before)
}

// write writes an object. fresh is false if the store had its content already: the version may then be old.
func (d *Directory) write(
	ctx context.Context, name string, do func(context.Context) (written tenants.Object, fresh bool, err error),
) (written tenants.Object, err error) {
	before, fresh := d.before(), false
	written, err = ask(ctx, d, name, func(ctx context.Context) (written tenants.Object, err error) {
		written, fresh, err = do(ctx)
		return written, err
	})
	if err != nil || !fresh {
		return written, err
	}
	return written, d.goneBy(written.Version, before)
}

// replace makes an object have a spec, whatever was there.
func (d *Directory) replace(ctx context.Context, object tenants.Object, spec any) (tenants.Object, error) {
	return d.write(ctx, "write "+string(object.Kind), func(ctx context.Context) (tenants.Object, bool, error) {
		return replace(ctx, d.store, object, spec)
	})
}

// remove deletes an object whatever its version, if what has its name is ours.
func (d *Directory) remove(ctx context.Context, object tenants.Object, ours func(tenants.Object) bool) error {
	_, err := ask(ctx, d, "delete "+string(object.Kind), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, remove(ctx, d.store, object, ours)
	})
	return err
}
