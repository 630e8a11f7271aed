# fencing: leases, fencing tokens and receipts for PostgreSQL
#
#   make && make install      build, and install where PG_CONFIG points
#   make installcheck         test against a running server (PGHOST, PGPORT, ...)
#   make test                 all suites on a private server; needs nothing installed
#   make test SUITE=regress   one of them: regress, isolation or tap
#   make stress MINUTES=30    the nemesis run, as long as you like
#   make bench                what it costs, against what it replaces; draws docs/*.svg
#   make bench ROUNDS=9 SECONDS=2 JOBS="1000 100000 1000000"   as long as you like
#   make demo                 the story of two workers, on a private server

# Where this file is: elsewhere in a VPATH build (make -f /path/Makefile).
source := $(or $(VPATH),$(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST)))))
ifneq ($(abspath $(source)),$(CURDIR))
VPATH := $(source)
endif

EXTENSION = fencing
# the control file has the version, and nothing else here
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" '$(source)/fencing.control')
DATA = fencing--$(EXTVERSION).sql
MODULE_big = fencing
OBJS = \
	src/fencing.o src/args.o src/notify.o \
	src/store.o src/store_shape.o src/store_table.o src/key_lock.o src/owner_query.o src/durable.o \
	src/gate.o src/gate_call.o src/statement.o src/canonical.o src/digest.o \
	src/epoch.o src/job.o src/job_forget.o src/lease.o src/commit.o \
	src/once.o src/once_operation.o src/once_authorize.o src/once_schema.o \
	src/once_projection.o src/once_value.o src/once_format.o \
	src/outbox.o src/outbox_subscribe.o src/outbox_attempt.o src/outbox_settle.o src/outbox_ack.o src/outbox_compact.o src/outbox_scan.o src/outbox_purge.o \
	src/publish.o src/publish_read.o src/target.o src/apply.o src/apply_external.o \
	src/tag.o src/tag_lock.o src/tag_event.o src/tag_subject.o src/tag_name.o \
	src/tag_merge.o src/tag_migration.o src/tag_reconcile.o src/tag_list.o \
	src/pass.o src/protect.o src/purge.o src/purge_position.o src/access.o
PGFILEDESC = "fencing - leases, fencing tokens and receipts"

# The suites find the extension in their database.  Canonical form and digests
# need UTF8, whatever the encoding of the server's templates is.
ENCODING = UTF8
load_extensions = --load-extension=pgcrypto --load-extension=fencing
REGRESS = $(sort $(patsubst $(source)/sql/%.sql,%,$(wildcard $(source)/sql/*.sql)))
REGRESS_OPTS = $(load_extensions)
ISOLATION = $(sort $(patsubst $(source)/test/isolation/specs/%.spec,%,$(wildcard $(source)/test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(source)/test/isolation $(load_extensions)
# the rule of PGXS goes to the source folder for these
PROVE_TESTS = $(sort $(patsubst $(source)/%,%,$(wildcard $(source)/test/t/*.pl)))
TAP_TESTS := $(if $(PROVE_TESTS),1)

PG_CONFIG ?= pg_config

# These two bring their own build, and must work where there is no pg_config yet.
own_build = test demo stress bench
ifneq ($(filter-out $(own_build),$(or $(MAKECMDGOALS),all)),)

# Debian's client package brings pgxs.mk, so it is the headers that tell.
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
server_header := $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/postgres.h
ifeq ($(and $(wildcard $(PGXS)),$(wildcard $(server_header))),)
word_2_major = $(firstword $(subst ., ,$(word 2,$(1))))
major := $(or $(call word_2_major,$(shell $(PG_CONFIG) --version 2>/dev/null)),$(patsubst /usr/lib/postgresql/%/bin/postgres,%,$(lastword $(wildcard /usr/lib/postgresql/*/bin/postgres))),NN)
$(error The files to build against are missing ($(if $(PGXS),no $(server_header),there is no $(PG_CONFIG))).  Please install \
postgresql-server-dev-$(major)$(if $(filter NN,$(major)), (NN: the major version of your server)), or name \
the pg_config of a PostgreSQL that has them: make PG_CONFIG=...)
endif

# A server built with LLVM wants bitcode too, which only serves inlining by the
# JIT compiler: do without it where clang or llvm-lto is not installed.
makefile_global := $(dir $(PGXS))../Makefile.global
llvm_tool = $(shell command -v "$$(sed -n 's/^$(1) *= *//p' '$(makefile_global)')$(2)" 2>/dev/null)
ifeq ($(and $(call llvm_tool,CLANG),$(call llvm_tool,LLVM_BINPATH,/llvm-lto)),)
override with_llvm = no
endif

include $(PGXS)

objects = $(OBJS) $(OBJS:.o=.bc)
$(objects): $(patsubst $(source)/%,%,$(wildcard $(source)/src/*.h))

# A VPATH build begins in an empty folder.  With its whole name, since make
# would find src itself by VPATH.
$(objects): | $(CURDIR)/src
$(CURDIR)/src:
	mkdir -p '$@'

endif

.PHONY: $(own_build)

test:
	@$(source)/test/run $(SUITE)

demo:
	@$(source)/test/run demo

MINUTES ?= 30
stress:
	@$(source)/test/stress/run $(MINUTES)

ROUNDS ?= 9
SECONDS ?= 2
JOBS ?= 1000 100000 1000000
bench:
	@$(source)/test/bench/all.sh $(ROUNDS) $(SECONDS) $(JOBS)
