package tenants

import (
	"context"
	"errors"
	"time"
)

// Store keeps the directory's objects for all nodes: an API server, a file in a shared folder, or the memory of a single
// daemon. All methods may be called concurrently. An error other than those below means that the store could not be
// asked, or that its answer is unknown: a write may have happened.
type Store interface {
	// Create adds an object and returns it with its UID and Version. It returns ErrExists if there is one of its kind,
	// space and name. It makes the space if it is missing. Off is not written.
	Create(ctx context.Context, object Object) (Object, error)
	// Update replaces the spec of the object with this UID and Version and returns it with its new Version, which
	// may be the same if the spec is. It keeps the fields of the
	// spec that are not in it only if the caller merged them (Merge). It returns ErrConflict if the object has another UID or Version, and ErrGone if
	// there is none. Off is not written.
	Update(ctx context.Context, object Object) (Object, error)
	// Delete deletes the object with this UID and Version. It returns ErrConflict if the object has another UID or
	// Version, and ErrGone if there is none.
	Delete(ctx context.Context, object Object) error
	// Get returns an object, or ErrGone. It is linearizable: it returns what the last write that succeeded before the
	// call left, or something later.
	Get(ctx context.Context, kind Kind, space, name string) (Object, error)
	// List returns all objects of a kind in a space and the version at which the store had exactly these. It is
	// linearizable like Get; an API server is asked with resourceVersion="" and never by an informer. A space that is
	// missing is empty.
	List(ctx context.Context, kind Kind, space string) (List, error)
	// Watch calls heard for every change of a kind in a space after the version, in the order of the versions and
	// without a gap, until ctx ends, the connection breaks (an error), or the store has forgotten changes after the
	// version (ErrExpired); the caller then lists again. It returns a nil error never. A space that is missing may appear
	// later. The store sends nothing about other spaces.
	Watch(ctx context.Context, kind Kind, space string, version uint64, heard func(Event)) error

	// WatchPolicy calls heard with the operators' policy, now and whenever it changes, and lost when it cannot be read,
	// until ctx ends. It may merge changes. It does not watch namespaces.
	WatchPolicy(ctx context.Context, heard func(Policy), lost func(error))
	// Namespace returns the namespace of a name now. It is linearizable, and returns ErrGone if there is none. A store without
	// namespaces returns one with no UID for every name.
	Namespace(ctx context.Context, name string) (Namespace, error)
	// Machine returns what the store knows about the machine of a node: in Kubernetes, of its Node object.
	Machine(ctx context.Context, node string) (Machine, error)
}

// List are the objects of a kind in a space at a version of the store.
type List struct {
	Objects []Object
	Version uint64
}

// Event is a change of an object, or only a later version of the store up to which there was none: Object.Name is then "".
type Event struct {
	Object Object
	// Deleted means that the object is gone; Object.Version is that of its deletion.
	Deleted bool
}

// Namespace is a namespace of pods. A later one of the same name has another UID and is another tenant.
type Namespace struct {
	Name, UID string
	// Made is the time of the store's clock when it was created. Zero means unknown.
	Made time.Time
}

// Machine identifies a machine. Texts are empty if the store knows none.
type Machine struct {
	// NodeUID is the UID of its Node.
	NodeUID string
	// ID is its machine ID.
	ID string
}

// Errors of a Store.
var (
	ErrExists   = errors.New("object exists already")
	ErrConflict = errors.New("object was changed by another client")
	ErrGone     = errors.New("no such object")
	ErrExpired  = errors.New("changes since this version are forgotten")
)
