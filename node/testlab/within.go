package testlab

// Within runs a function on a thread that is in the namespace: sockets that it opens stay there.
func (namespace *Namespace) Within(do func() error) error { return namespace.within(do) }
