# Every target with a text after ## is in the help.

GO ?= go
GOLANGCI_LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
export CGO_ENABLED = 1

.DEFAULT_GOAL := help
.PHONY: help quickstart test conformance faults unit lint build bench services-up services-down clean

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: ## what an outbox does, in one program that needs no server: SQLite, JetStream, a relay that is killed; it checks itself
	@echo "Building; the first time takes a minute."
	@cd examples && CGO_ENABLED=0 $(GO) run ./quickstart

test: ## every test of every module with -race, on real servers that it starts and stops; ARGS="-run X ./engine/..." for fewer
	@mkdir -p bin
	@$(GO) build -o bin/testrun ./internal/cmd/testrun
	@exec bin/testrun $(ARGS)

# The same code as in make test, which has one server of a kind and one seed.
conformance: ## the public suite against one store, with -race: STORE=pg15, pg17, pg18, mysql, mariadb, mariadb118 or sqlite
	@case "$(STORE)" in \
	pg15|pg17|pg18) package=postgres run="TestConformance/$(STORE)$$" servers=$(STORE) ;; \
	mysql|mariadb|mariadb118) package=mysql run="TestConformance/$(STORE)$$" servers=$(STORE) ;; \
	sqlite) package=sqlite run="TestConformance$$" servers= ;; \
	sqlserver) echo "NOT RUN: sqlserver: there is no dialect for it yet"; exit 1 ;; \
	*) echo "STORE is \"$(STORE)\"; it must be pg15, pg17, pg18, mysql, mariadb, mariadb118 or sqlite"; exit 2 ;; \
	esac; \
	mkdir -p bin && $(GO) build -o bin/testrun ./internal/cmd/testrun && \
	OUTWARD_TEST_SERVERS="$$servers" OUTWARD_TEST_REQUIRE="$$servers" exec bin/testrun -run "$$run" ./dialects/$$package

faults: ## crashes and faults of every database with every broker, on all servers, with two seeds; an hour or two; ARGS="-run TestFaults/.*/killed" for fewer
	@mkdir -p bin
	@$(GO) build -o bin/testrun ./internal/cmd/testrun
	@OUTWARD_FAULTS=all OUTWARD_TEST_LIMIT=$${OUTWARD_TEST_LIMIT:-4h} exec bin/testrun -module conformance/matrix -timeout 4h -run 'TestFaults|TestCrash' $(ARGS)

unit: ## the inner loop: the root module's tests that need no server
	$(GO) test -race -short ./...

lint: ## go vet, gofmt and golangci-lint (its first run builds it: a minute or two)
	$(GO) vet ./...
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); test -z "$$files" || { echo "gofmt wants to change:"; echo "$$files"; exit 1; }
	@for m in $$(git ls-files --cached --others --exclude-standard 'go.mod' '*/go.mod'); do echo "# golangci-lint: $$m"; (cd $$(dirname $$m) && $(GOLANGCI_LINT) run ./...) || exit 1; done

build: ## bin/outward
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/outward ./cmd/outward

bench: ## measure, on servers that it starts and stops again; ARGS="-list" says what there is, ARGS="-runs 1 -only rabbitmq4/drain" does less
	@started=$$(scripts/services up pg17 rabbitmq4 nats) || exit 1; \
	trap '[ -z "$$started" ] || scripts/services down $$started' EXIT; \
	eval "$$(scripts/services env)"; (cd bench && $(GO) run . $(ARGS))

services-up: ## start the servers that the tests use, to keep them between runs
	scripts/services up pg15 pg17 pg18 mysql mariadb mariadb118 rabbitmq4 nats

services-down: ## stop every server that scripts/services runs
	scripts/services down

clean: ## delete what was built; scripts/services purge deletes the servers
	rm -rf bin dist
