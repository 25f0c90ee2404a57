package machine

// Ownership is what a provider last knew of its claim to what carries its owner
// tag at the cloud. It is kept with the records, and so copied with them; a state
// that is new or was restored has none.
type Ownership struct {
	// Number and Holder are the owner epoch that the last start took; zero before
	// the first.
	Number int64
	Holder string
	// LostTo is the greater epoch that the provider met at the cloud, "" while it
	// met none. A process that has met one is not the owner any more, whatever the
	// cloud shows later.
	LostTo string
}
