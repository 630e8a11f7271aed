# shellcheck shell=bash
#
# The work tree as it is, to be tested elsewhere.  Sourced; root is its folder.
# shellcheck disable=SC2154

# git knows which files are build products; of a tarball all are taken, and
# "make clean" removes those later.
list_files()
{
	if [ -e "$root/.git" ] && command -v git >/dev/null; then
		git -c safe.directory="$root" -C "$root" ls-files -z --cached --others --exclude-standard
	else
		(cd "$root" && find . -name .git -prune -o -not -type d -print0)
	fi
}

# A tar archive to standard output.
pack_tree()
{
	local name

	list_files | while IFS= read -r -d '' name; do
		# deleted, but git has not been told yet
		if [ -e "$root/$name" ]; then
			printf '%s\0' "$name"
		fi
	done | tar -C "$root" --null -T - -cf -
}

# Test vectors that are kept beside the project, if they are there.
vectors()
{
	echo "${FENCING_VECTORS:-$root/../shared/vectors}"
}
