#!/bin/sh
# Puts the operant command where the PATH finds it.
set -eu

usage() {
    cat <<'END'
usage: sh install.sh [--prefix DIR]

Copies bin/operant to DIR/bin. DIR is ~/.local unless it is named.
END
}

prefix="${HOME:-}/.local"
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix)
            [ $# -ge 2 ] || { echo "error: --prefix wants a folder" >&2; exit 2; }
            prefix="$2"
            shift 2
            ;;
        -h|--help) usage; exit 0 ;;
        *) echo "error: unknown word \"$1\" (sh install.sh --help)" >&2; exit 2 ;;
    esac
done

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
[ -f "$here/bin/operant" ] || { echo "error: no $here/bin/operant; unpack the whole archive, then run its install.sh" >&2; exit 1; }
mkdir -p "$prefix/bin"
# Copied under another name first: a running command keeps its file, and a copy that is cut off replaces nothing.
cp "$here/bin/operant" "$prefix/bin/operant.new"
chmod 755 "$prefix/bin/operant.new"
mv -f "$prefix/bin/operant.new" "$prefix/bin/operant"
"$prefix/bin/operant" --version
echo "installed: $prefix/bin/operant"
case ":$PATH:" in
    *":$prefix/bin:"*) echo "next: operant train ppo cartpole" ;;
    *) echo "next: $prefix/bin/operant train ppo cartpole (or add $prefix/bin to your PATH)" ;;
esac
