package lifecycle

// deleteSteps gives the host back, with all that was made for it.
func (e *Engine) deleteSteps() []step { return cloudSteps(e.o.Deleter.Delete()) }
