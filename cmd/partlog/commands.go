package main

// commands lists every verb in the order of the help page: reading first.
func commands() []*command {
	return []*command{
		// reading
		catCommand(),
		tailCommand(),
		offsetCommand(),
		infoCommand(),
		producersCommand(),
		transactionsCommand(),
		epochsCommand(),
		dumpCommand(),
		verifyCommand(),
		planCommand(),
		reportCommand(),
		// writing
		appendCommand(),
		truncateCommand(),
		restartCommand(),
		deleteRecordsCommand(),
		retainCommand(),
		cleanCommand(),
		rollCommand(),
		repairCommand(),
		// copying
		backupCommand(),
		restoreCommand(),
		handoverCommand(),
		// about itself
		versionCommand(),
	}
}
