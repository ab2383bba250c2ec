"""Read and change a file, without overwriting another user's change. Usage: files.py [TARGET]"""

import sys

import anyio

import harness


async def main(target: str) -> None:
    async with harness.connect(target) as ctx:
        await ctx.write_file("example/limits.conf", "max = 10\n", permissions=0o640)

        before = await ctx.read_file("example/limits.conf")
        await ctx.write_file("example/limits.conf", before.text.replace("10", "20"), expect=before.version)

        try:
            await ctx.write_file("example/limits.conf", "max = 30\n", expect=before.version)
        except harness.StaleFileError as error:
            print("refused:", error.message)

        for entry in await ctx.list_dir("example"):
            print(entry.type, entry.size, entry.name)
        await ctx.remove("example", recursive=True)


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
