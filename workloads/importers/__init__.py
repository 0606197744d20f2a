"""Networks from files and objects of other tools. Each importer loads what it needs when it is called."""
