# Everything a contributor or a CI job runs; `make help` lists the targets.

# Pinned tools live outside the checkout, so that clones share them.
export TOOLS ?= $(HOME)/.cache/bigfleet-tools

BUF                := github.com/bufbuild/buf/cmd/buf v1.75.0
PROTOC_GEN_GO      := google.golang.org/protobuf/cmd/protoc-gen-go v1.36.12
PROTOC_GEN_GO_GRPC := google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2
GOLANGCI_LINT      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint v2.15.0
HELM               := helm.sh/helm/v3/cmd/helm v3.22.0
NFPM               := github.com/goreleaser/nfpm/v2/cmd/nfpm v2.45.2
CYCLONEDX_GOMOD    := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod v1.10.0
GOVULNCHECK        := golang.org/x/vuln/cmd/govulncheck v1.9.0

# A tree without its history, such as a source archive, is built as "dev".
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The time of all files in what is built for others: the commit's.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

GO_DIRS := agent cloudinit deploy packaging proto provider shared

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every program into bin/
	@.ci/build '$(VERSION)'

.PHONY: test
test: setup ## run all tests with the race detector; none from the cache, which does not know what the end-to-end tests build
	@.ci/tool $(NFPM)
	NFPM=$(TOOLS)/nfpm CGO_ENABLED=1 go test -race -count=1 -timeout 10m ./...

.PHONY: flake
flake: setup ## run tests RUNS=20 times on a busy machine, for what fails only there; PKG=./dir/... and RUN=regexp choose some, LOAD=8
	@.ci/tool $(NFPM)
	@NFPM=$(TOOLS)/nfpm CGO_ENABLED=1 RUNS='$(RUNS)' RUN='$(RUN)' PKG='$(PKG)' LOAD='$(LOAD)' .ci/flake

.PHONY: e2e-host
e2e-host: ## tests on Debian guests that boot in containers; needs root; RUN=regexp chooses some
	@.ci/e2e-host '$(or $(RUN),.)'

.PHONY: e2e-node
e2e-node: ## tests with real Kubernetes nodes in such guests, 3 minutes; needs root and make kube; RUN=regexp chooses some
	@.ci/e2e-node '$(or $(RUN),.)'

.PHONY: kube
kube: ## build the Kubernetes of make e2e-node; once, takes 12 minutes
	@.ci/kube/build

.PHONY: debian-root
debian-root: ## print the folder of the Debian that guests boot from; made where missing, as root
	@.ci/debian-root

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (10s if not given); make test tries their seeds only
	.ci/fuzz $(or $(FUZZTIME),10s)

.PHONY: e2e
e2e: ## the contract suite on Instances and on Elastic Metal, with the race detector
	CGO_ENABLED=1 go test -race -count=1 -timeout 5m ./provider/e2e/contract
	CGO_ENABLED=1 go test -race -count=1 -timeout 5m ./provider/e2e/contract -substrate=elastic-metal

.PHONY: bench
bench: ## run all benchmarks; BENCH=regexp chooses some; table in dist/bench.md
	mkdir -p dist
	BENCH_MARKDOWN=$(CURDIR)/dist/bench.md BENCH_JSON=$(CURDIR)/dist/bench.json \
	  go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -timeout 40m -p 1 $$(grep -rl --include='*_test.go' '^func Benchmark' agent cloudinit provider shared | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: deb
deb: ## the agent's Debian packages for amd64 and arm64 in dist/
	@.ci/tool $(NFPM)
	@rm -f dist/bigfleet-agent_*.deb
	@NFPM=$(TOOLS)/nfpm packaging/build $(VERSION) dist amd64 arm64

.PHONY: apt-repo
apt-repo: ## an APT repository of them in dist/apt, signed with GPG_KEY (a file, or a key in gpg's keyring)
	@test -n "$(GPG_KEY)" || { echo 'which key signs it? make apt-repo GPG_KEY=...' >&2; exit 1; }
	@$(MAKE) --no-print-directory setup deb
	@packaging/apt-repo dist/apt "$(GPG_KEY)" dist/bigfleet-agent_*.deb

.PHONY: image
image: deb ## a container image of each provider as OCI archive in dist/
	@rm -rf dist/programs
	@for arch in amd64 arm64; do \
	  packaging/programs $(VERSION) dist/programs/$$arch $$arch ./provider/cmd/capacityctl \
	    $$(packaging/providers | sed 's|^|./provider/cmd/|') || exit 1; \
	done
	@packaging/images $(VERSION) dist dist/programs dist

.PHONY: release
release: ## all that is published, in dist/release, from the tag that is checked out
	@.ci/tool $(NFPM)
	@.ci/tool $(CYCLONEDX_GOMOD)
	@.ci/tool $(GOVULNCHECK)
	@NFPM=$(TOOLS)/nfpm CYCLONEDX_GOMOD=$(TOOLS)/cyclonedx-gomod packaging/release $(VERSION) dist/release

.PHONY: vulncheck
vulncheck: ## look for known vulnerabilities, where their database can be reached
	@.ci/vulncheck $(GOVULNCHECK)

.PHONY: demo
demo: build ## five machines through their life, with a kill -9 on the way; SUBSTRATE=elastic-metal for dedicated servers
	@bin/demo

.PHONY: lint
lint: tools ## gofmt, golangci-lint with all that go vet has, buf lint
	@found=$$(gofmt -l $(GO_DIRS)) && test -z "$$found" || \
	  { printf 'not formatted; run make fmt:\n%s\n' "$$found" >&2; exit 1; }
	CGO_ENABLED=0 GOFLAGS=-trimpath $(TOOLS)/golangci-lint run
	cd proto && $(TOOLS)/buf lint

.PHONY: verify
verify: lint ## lint, and check that generated code and go.mod are up to date and modules are what go.sum says
	.ci/generated
	go mod tidy -diff
	go mod verify

.PHONY: fmt
fmt: ## format the Go code
	gofmt -w $(GO_DIRS)

.PHONY: generate
generate: tools ## generate the Go code of the .proto files, alert rules, dashboard and lists in the docs
	cd proto && PATH="$(TOOLS):$$PATH" buf generate
	go run ./provider/internal/monitoring/generate
	for cloud in $$(packaging/providers); do go test ./provider/$$cloud -run '^TestEveryFlagIsDocumented$$' -update || exit 1; done

.PHONY: setup
setup: ## install what the tests need from Debian, where it is missing
	@.ci/setup

.PHONY: tools
tools: ## install the pinned tools, where they are missing
	@.ci/tool $(BUF)
	@.ci/tool $(PROTOC_GEN_GO)
	@.ci/tool $(PROTOC_GEN_GO_GRPC)
	@.ci/tool $(GOLANGCI_LINT)
	@.ci/tool $(HELM)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist .demo
