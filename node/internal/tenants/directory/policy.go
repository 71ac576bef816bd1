package directory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"railwright/node/internal/pause"
	"railwright/node/internal/tenants"
)

// TenantOf implements tenants.Directory.
func (d *Directory) TenantOf(ctx context.Context, namespace string) (string, error) {
	tenant, err := d.grouped(ctx, namespace)
	if err != nil {
		return "", err
	}
	if _, single := tenants.SingleNamespace(tenant); !single {
		return tenant, nil
	}
	named, err := d.lookUp(ctx, namespace)
	if err != nil {
		return "", err
	}
	return tenants.NamespaceTenant(named), nil
}

// grouped returns the tenant of a namespace by the policy, once there is one.
func (d *Directory) grouped(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, policyWait)
	defer cancel()
	for {
		d.mutex.Lock()
		rules, moved, fault := d.state.rules, d.moved, d.policyFault
		d.mutex.Unlock()
		if rules != nil {
			return rules.TenantOf(namespace)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: tenants are not known yet %s", tenants.ErrUnreachable, fault)
		case <-moved:
		}
	}
}

// noUID is the UID of a namespace that does not exist.
const noUID = "-"

// lookUp finds out which namespace has a name now.
func (d *Directory) lookUp(ctx context.Context, name string) (named tenants.Namespace, err error) {
	fresh, again := false, true
	for again {
		d.mutex.Lock()
		d.asked++
		asked := d.asked
		d.mutex.Unlock()
		named, err = ask(ctx, d, "read namespace", func(ctx context.Context) (tenants.Namespace, error) {
			return d.store.Namespace(ctx, name)
		})
		if errors.Is(err, tenants.ErrGone) {
			// A namespace that comes later is another one; its peerings are younger.
			named, err = tenants.Namespace{Name: name, UID: noUID}, nil
		}
		if err != nil {
			return named, err
		}
		d.act(func(s *state) {
			known, found := s.named[name]
			if again = s.asked[name] > asked && !found; again {
				return // a peering came meanwhile
			}
			if s.asked[name] > asked {
				named = known // the answer to a later question came first
				return
			}
			s.asked[name] = asked
			if fresh = !found || known.UID != named.UID; fresh {
				s.named[name] = named
				s.rescope()
			}
		})
	}
	if fresh {
		err = d.journal.write(entry{Namespace: &named})
	}
	if err == nil && named.UID == noUID {
		err = fmt.Errorf("%w: there is no namespace %.80q", tenants.ErrNoTenant, name)
	}
	return named, err
}

// Regroup implements tenants.Directory.
func (d *Directory) Regroup(ctx context.Context, namespace, before string) (string, error) {
	rules := look(d, func(s *state) *tenants.Rules { return s.rules })
	if rules == nil {
		return before, nil
	}
	tenant, err := rules.TenantOf(namespace)
	if err != nil || tenant == tenants.Display(before) {
		return before, err
	}
	if _, single := tenants.SingleNamespace(before); single {
		named, err := d.lookUp(ctx, namespace)
		if err != nil || tenants.NamespaceTenant(named) != before {
			return before, err // its namespace is gone
		}
	}
	return d.TenantOf(ctx, namespace)
}

// followPolicy takes in the operators' policy.
func (d *Directory) followPolicy(ctx context.Context) {
	d.store.WatchPolicy(ctx, func(policy tenants.Policy) {
		d.mutex.Lock()
		d.policyFault = ""
		known := map[tenants.Peering]bool{}
		if d.state.policy != nil {
			for _, peering := range d.state.policy.Peerings {
				known[stamped(peering)] = true
			}
		}
		d.mutex.Unlock()
		// A peering is of the namespaces that there are when it is made. These are found out before it applies: pods of an earlier
		// namespace may still run here.
		settled, rules := policy, tenants.NewRules(policy)
		settled.Peerings = slices.DeleteFunc(slices.Clone(policy.Peerings), func(peering tenants.Peering) bool {
			return !known[stamped(peering)]
		})
		if len(settled.Peerings) == len(policy.Peerings) {
			d.takePolicy(policy)
			return
		}
		d.takePolicy(settled)
		d.act(func(s *state) {
			wanted := s.wanted(rules)
			for _, peering := range policy.Peerings {
				for _, tenant := range []string{peering.A, peering.B} {
					name, single := tenants.SingleNamespace(tenant)
					if single && !wanted[name] && !known[stamped(peering)] {
						d.asked++
						s.asked[name] = d.asked
						delete(s.named, name)
					}
				}
			}
		})
		if d.lookAgain(ctx, rules) {
			d.takePolicy(policy)
		}
	}, func(err error) {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.policyFault = err.Error()
	})
}

// stamped returns a peering that equals another one if both were made at the same time.
func stamped(peering tenants.Peering) tenants.Peering {
	peering.Made = time.Unix(0, peering.Made.UnixNano())
	return peering
}

func (d *Directory) takePolicy(policy tenants.Policy) {
	fresh := false
	d.act(func(s *state) {
		if s.policy != nil && reflect.DeepEqual(*s.policy, policy) {
			return
		}
		fresh = true
		s.policy, s.rules = &policy, tenants.NewRules(policy)
		s.rescope()
		s.version++
		s.redrawn = s.version
	})
	if !fresh {
		return
	}
	if err := d.journal.write(entry{Policy: &policy}); err != nil {
		d.log.Warn("cannot store the tenants", "error", err)
	}
}

// lookAgain finds out which namespaces the peerings of tenants here name now. It returns false if ctx ended first.
func (d *Directory) lookAgain(ctx context.Context, rules *tenants.Rules) bool {
	for ctx.Err() == nil {
		failed := false
		for name := range look(d, func(s *state) map[string]bool { return s.wanted(rules) }) {
			_, err := d.lookUp(ctx, name)
			failed = failed || err != nil && !errors.Is(err, tenants.ErrNoTenant)
		}
		if !failed {
			return true
		}
		if !pause.For(ctx, time.Second) {
			break
		}
	}
	return false
}
