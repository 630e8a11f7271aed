# fencing: leases, fencing tokens and receipts for PostgreSQL
#
#   make && make install      build, and install where PG_CONFIG points
#   make installcheck         test against a running server (PGHOST, PGPORT, ...)
#   make test                 all suites on a private server; needs nothing installed
#   make stress MINUTES=30    the nemesis run, as long as you like
#   make demo                 the story of two workers, on a private server

EXTENSION = fencing
DATA = fencing--1.0.sql
MODULE_big = fencing
OBJS = \
	src/fencing.o \
	src/args.o \
	src/gate.o \
	src/store.o \
	src/query.o \
	src/statement.o \
	src/canonical.o \
	src/digest.o \
	src/fence.o \
	src/lease.o \
	src/commit.o \
	src/once.o \
	src/operation.o \
	src/authorize.o \
	src/request_projection.o \
	src/request_schema.o \
	src/request_format.o \
	src/outbox.o \
	src/publish.o \
	src/target.o \
	src/apply.o \
	src/pass.o \
	src/guard.o \
	src/epoch.o \
	src/retention.o \
	src/access.o
PGFILEDESC = "fencing - leases, fencing tokens and receipts"

# The suites find the extension in their database.  Canonical form and digests
# need UTF8, whatever the encoding of the server's templates is.
ENCODING = UTF8
load_extensions = --load-extension=pgcrypto --load-extension=fencing
REGRESS = $(sort $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)))
REGRESS_OPTS = $(load_extensions)
ISOLATION = $(sort $(patsubst test/isolation/specs/%.spec,%,$(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation $(load_extensions)
PROVE_TESTS = $(sort $(wildcard test/t/*.pl))
TAP_TESTS := $(if $(PROVE_TESTS),1)

PG_CONFIG ?= pg_config

# These two bring their own build, and must work where there is no pg_config yet.
own_build = test demo stress
ifneq ($(filter-out $(own_build),$(or $(MAKECMDGOALS),all)),)

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(wildcard $(PGXS)),)
$(error PostgreSQL's build files are not there: install the server's development package, or set PG_CONFIG)
endif

# A server built with LLVM wants bitcode too, which only serves inlining by the
# JIT compiler: do without it where clang or llvm-lto is not installed.
makefile_global := $(dir $(PGXS))../Makefile.global
llvm_tool = $(shell command -v "$$(sed -n 's/^$(1) *= *//p' '$(makefile_global)')$(2)" 2>/dev/null)
ifeq ($(and $(call llvm_tool,CLANG),$(call llvm_tool,LLVM_BINPATH,/llvm-lto)),)
override with_llvm = no
endif

include $(PGXS)

$(OBJS) $(OBJS:.o=.bc): src/fencing.h

endif

.PHONY: $(own_build)

test:
	@test/run

demo:
	@test/run demo

MINUTES ?= 30
stress:
	@test/stress/run $(MINUTES)
